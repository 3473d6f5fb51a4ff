import { monotonicNow } from "@gateway/shared/process/clock";
import { ConfigError, parseEnv } from "@gateway/shared/process/env";
import { hideUserinfo } from "@gateway/shared/process/env";
import { silentLog } from "@gateway/shared/process/log";
import { createRedisLink, type RedisAddress } from "@gateway/shared/redis/link";
import {
  NATS_VARIABLES,
  REDIS_VARIABLES,
  redisAccess,
} from "@gateway/shared/process/service_variables";
import { makePrivateDir, writePrivateFile } from "./files.ts";
import type { UpOptions } from "./options.ts";
import { findFreePorts } from "./ports.ts";
import type { Unit } from "./supervise.ts";
import { EXIT, messageOf, UpError } from "./up_error.ts";
import { within } from "./wait.ts";

/** Servers of others that the operator wants to be used; absent: start one. */
export interface GivenStores {
  /** One or more addresses, separated by commas. */
  natsUrl: string | undefined;
  redisUrl: string | undefined;
}

type Environment = Readonly<Record<string, string>>;

/** A private server and where it answers. */
export interface Store {
  url: string;
  unit: Unit;
}

const readFile = Deno.readTextFileSync;
const LOOPBACK = "127.0.0.1";
const NATS_PORT = 4222;
const GREETING = "INFO ";
const ANSWER_MS = 3_000;
const NATS_READY_MS = 10_000;
/** A large append-only file takes a while to load. */
const REDIS_READY_MS = 120_000;

/**
 * Reads which servers the environment names, as the services will read it, and
 * checks that they answer. Throws an {@link UpError} that names the variable and
 * the address, never a password.
 */
export async function findGivenStores(env: Environment): Promise<GivenStores> {
  // An empty variable is how many tools say "not set".
  const isGiven = (name: string) => Boolean(env[name] || env[`${name}_FILE`]);
  try {
    const natsUrl = isGiven("NATS_URL")
      ? parseEnv(NATS_VARIABLES, env, readFile).NATS_URL.join()
      : undefined;
    const redis = isGiven("REDIS_URL")
      ? redisAccess(parseEnv(REDIS_VARIABLES, env, readFile))
      : undefined;
    await Promise.all([
      natsUrl !== undefined && requireNats(natsUrl),
      redis !== undefined && requireRedis(redis),
    ]);
    return { natsUrl, redisUrl: redis?.url };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new UpError(error.message, EXIT.config);
  }
}

/** One of several must answer. */
async function requireNats(urls: string): Promise<void> {
  try {
    await Promise.any(urls.split(",").map(greetNats));
  } catch (error) {
    const cause = error instanceof AggregateError ? error.errors[0] : error;
    throw unusable("NATS", urls, cause);
  }
}

/** Without TLS: NATS greets in plain text, also where TLS follows. */
async function greetNats(address: string): Promise<void> {
  const text = address.trim();
  const url = new URL(text.includes("://") ? text : `nats://${text}`);
  const connection = await within(
    Deno.connect({
      hostname: url.hostname,
      port: Number(url.port || NATS_PORT),
    }),
    ANSWER_MS,
  );
  if (!connection) throw new Error(`no connection within ${ANSWER_MS} ms`);
  const bytes = new Uint8Array(GREETING.length);
  const size = await within(connection.read(bytes), ANSWER_MS);
  connection.close();
  if (size === undefined) throw new Error(`no answer within ${ANSWER_MS} ms`);
  if (new TextDecoder().decode(bytes) !== GREETING) {
    throw new Error("what answers there is not NATS");
  }
}

async function requireRedis(address: RedisAddress): Promise<void> {
  const link = createRedisLink({
    address,
    log: silentLog,
    now: monotonicNow,
    random: Math.random,
  });
  try {
    await link.ready(ANSWER_MS);
  } catch (error) {
    const isError = error instanceof Error;
    throw unusable("Redis", address.url, isError && error.cause || error);
  } finally {
    await link.close();
  }
}

function unusable(server: string, url: string, error: unknown): UpError {
  const variable = `${server.toUpperCase()}_URL`;
  const why = error instanceof Deno.errors.ConnectionRefused ||
      messageOf(error).includes("ECONNREFUSED")
    ? "connection refused"
    : messageOf(error);
  return new UpError(
    `Cannot use ${server} at "${hideUserinfo(url)}" (${variable}): ${why}\n` +
      `Without ${variable} the gateway starts a server of its own`,
    EXIT.config,
  );
}

/** A NATS server of our own on a free loopback port. */
export async function natsStore(
  path: string,
  { runDir }: UpOptions,
  env: Environment,
): Promise<Store> {
  const [port = 0] = findFreePorts(1);
  const configFile = `${runDir}/nats.conf`;
  // A client that stops reading must not hold up those that write to it for 10 s.
  await writePrivateFile(
    configFile,
    `host: ${LOOPBACK}\nport: ${port}\nmax_payload: 1MB\nwrite_deadline: "2s"\n`,
  );
  return {
    url: `nats://${LOOPBACK}:${port}`,
    unit: {
      name: "nats",
      service: "nats",
      program: () => ({
        file: path,
        args: ["-c", configFile],
        env,
        cwd: runDir,
      }),
      readyText: "Server is ready",
      readyMs: NATS_READY_MS,
    },
  };
}

/**
 * A Redis server of our own on a free loopback port. Key changes must survive
 * power loss, so every write is on disk before it is answered.
 */
export async function redisStore(
  path: string,
  { dataDir }: UpOptions,
  env: Environment,
): Promise<Store> {
  const [port = 0] = findFreePorts(1);
  const cwd = `${dataDir}/redis`;
  await makePrivateDir(cwd);
  const args = [
    ...["--bind", LOOPBACK, "--port", String(port), "--daemonize", "no"],
    ...["--appendonly", "yes", "--appendfsync", "always", "--save", ""],
    // Losing keys silently would be worse than an error.
    ...["--maxmemory-policy", "noeviction", "--loglevel", "notice"],
  ];
  return {
    url: `redis://${LOOPBACK}:${port}`,
    unit: {
      name: "redis",
      service: "redis",
      program: () => ({ file: path, args, env, cwd }),
      readyText: "Ready to accept connections",
      readyMs: REDIS_READY_MS,
    },
  };
}

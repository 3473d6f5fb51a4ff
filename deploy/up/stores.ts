import { errorMessage, hideUserinfo } from "@gateway/shared/process/env";
import { makePrivateDir, writePrivateFile } from "./files.ts";
import type { UpOptions } from "./options.ts";
import { findFreePorts } from "./ports.ts";
import type { Unit } from "./supervise.ts";
import { EXIT, UpError } from "./terminal.ts";
import { within } from "./wait.ts";

type Environment = Readonly<Record<string, string>>;

/** A private server and where it answers. */
export interface Store extends Unit {
  url: string;
}

const LOOPBACK = "127.0.0.1";
const DEFAULT_PORTS = { NATS_URL: 4222, REDIS_URL: 6379 };
const CONNECT_MS = 3_000;

/**
 * The addresses of a server that the operator wants to be used, separated by
 * commas, or `undefined` where there is none. Throws an {@link UpError}, without
 * passwords, when none of them accepts a connection; the rest the services check.
 */
export async function findGivenStore(
  variable: "NATS_URL" | "REDIS_URL",
  env: Environment,
): Promise<string | undefined> {
  const file = env[`${variable}_FILE`];
  // An empty variable is how many tools say "not set".
  let urls = env[variable] ?? "";
  try {
    if (urls === "" && file) urls = (await Deno.readTextFile(file)).trim();
    if (urls === "") return undefined;
    // Sentinels name the server, so the host of the address does not count.
    if (variable === "REDIS_URL" && env.REDIS_SENTINELS) return urls;
    await Promise.any(
      urls.split(",").map((url) =>
        connect(url.trim(), DEFAULT_PORTS[variable])
      ),
    );
    return urls;
  } catch (error) {
    const cause = error instanceof AggregateError ? error.errors[0] : error;
    throw new UpError(
      `Cannot use ${variable}="${hideUserinfo(urls)}": ${
        errorMessage(cause)
      }\nWithout ${variable} the gateway starts a server of its own`,
      EXIT.config,
    );
  }
}

async function connect(address: string, defaultPort: number): Promise<void> {
  const url = URL.parse(address.includes("://") ? address : `x://${address}`);
  if (url === null) throw new Error("not an address");
  const { hostname, port } = url;
  const connecting = Deno.connect({
    hostname,
    port: Number(port || defaultPort),
  });
  const connection = await within(connecting, CONNECT_MS);
  if (!connection) throw new Error(`no connection within ${CONNECT_MS} ms`);
  connection.close();
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
  const args = ["-c", configFile];
  return {
    url: `nats://${LOOPBACK}:${port}`,
    name: "nats",
    service: "nats",
    program: () => ({ file: path, args, env, cwd: runDir }),
    readyText: "Server is ready",
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
    name: "redis",
    service: "redis",
    program: () => ({ file: path, args, env, cwd }),
    readyText: "Ready to accept connections",
  };
}

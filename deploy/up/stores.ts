import { errorMessage } from "@gateway/shared/process/env";
import { makePrivateDir, writePrivateFile } from "./files.ts";
import type { UpOptions } from "./options.ts";
import { findFreePorts } from "./ports.ts";
import type { Unit } from "./supervise.ts";
import { EXIT, UpError } from "./terminal.ts";
import { within } from "./wait.ts";

type Environment = Readonly<Record<string, string>>;

/** A private server and its URL. */
export interface Store extends Unit {
  url: string;
}

const LOOPBACK = "127.0.0.1";
const ANSWER_MS = 1_000;

/** The URL of a server that the operator set, or `undefined`. */
export async function findGivenStore(
  variable: "NATS_URL" | "REDIS_URL",
  env: Environment,
): Promise<string | undefined> {
  // Many tools set a variable to the empty string for "not set".
  if (env[variable]) return env[variable];
  const file = env[`${variable}_FILE`];
  if (!file) return undefined;
  try {
    return (await Deno.readTextFile(file)).trim();
  } catch (error) {
    throw new UpError(
      `Cannot read ${variable}_FILE: ${errorMessage(error)}`,
      EXIT.config,
    );
  }
}

/** A private NATS server on a free loopback port. */
export async function natsStore(
  path: string,
  { runDir }: UpOptions,
  env: Environment,
): Promise<Store> {
  const [port = 0] = findFreePorts(1);
  const configFile = `${runDir}/nats.conf`;
  // By default a client that stops reading blocks its senders for 10 s.
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
 * A private Redis server on a free loopback port. Key changes must survive power
 * loss, so every write is on disk before Redis acknowledges it.
 */
export async function redisStore(
  path: string,
  { dataDir }: UpOptions,
  env: Environment,
): Promise<Store> {
  const [port = 0] = findFreePorts(1);
  const cwd = `${dataDir}/redis`;
  const portFile = `${cwd}/port`;
  await makePrivateDir(cwd);
  await requireNoRedis(cwd, portFile);
  await writePrivateFile(portFile, String(port));
  const args = [
    ...["--bind", LOOPBACK, "--port", String(port), "--daemonize", "no"],
    ...["--appendonly", "yes", "--appendfsync", "always", "--save", ""],
    // An error is better than silently evicting keys.
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

/**
 * Throws an {@link UpError} if a Redis server of an earlier run still uses the
 * directory: a second one would destroy the data. One is only left when the
 * launcher and its watcher were both killed.
 */
async function requireNoRedis(dir: string, portFile: string): Promise<void> {
  const port = Number(await Deno.readTextFile(portFile).catch(() => "0"));
  const connection = await Deno.connect({ hostname: LOOPBACK, port })
    .catch(() => undefined);
  if (!connection) return;
  const question = "CONFIG GET dir\r\nINFO server\r\nQUIT\r\n";
  await connection.write(new TextEncoder().encode(question));
  const reply = new Response(connection.readable).text().catch(() => "");
  // A frozen server does not answer.
  const answer = await within(reply, ANSWER_MS);
  const isOurs = answer?.includes(`\r\n${await Deno.realPath(dir)}\r\n`);
  if (isOurs === false) return;
  const [, pid = "unknown"] = /process_id:(\d+)/.exec(answer ?? "") ?? [];
  throw new UpError(
    `A Redis server of an earlier run still uses ${dir} (port ${port}, pid ${pid})\n` +
      `Stop it with: kill ${pid}`,
  );
}

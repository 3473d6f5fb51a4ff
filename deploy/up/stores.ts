import { parseEnv, secret } from "@gateway/shared/process/env";
import { makePrivateDir, writePrivateFile } from "./files.ts";
import type { UpOptions } from "./options.ts";
import { findFreePorts, isFreePort, LOOPBACK } from "./ports.ts";
import type { Environment } from "./services.ts";
import type { Unit } from "./supervise.ts";
import { UpError } from "./terminal.ts";

/** A private server and its URL. */
export interface Store extends Unit {
  url: string;
}

/** The addresses of servers from the environment, or from the files it names. Throws a `ConfigError` if one cannot be read. */
export function givenStores(env: Environment) {
  const url = secret().optional();
  return parseEnv(
    { NATS_URL: url, REDIS_URL: url },
    env,
    Deno.readTextFileSync,
  );
}

/** A private NATS server on a free loopback port. */
export async function natsStore(
  file: string,
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
  return {
    url: `nats://${LOOPBACK}:${port}`,
    name: "nats",
    service: "nats",
    program: { file, args: ["-c", configFile], env, cwd: runDir },
    readyText: "Server is ready",
  };
}

/**
 * A private Redis server on a free loopback port. Key changes must survive power
 * loss, so every write is on disk before Redis acknowledges it.
 */
export async function redisStore(
  file: string,
  { dataDir }: UpOptions,
  env: Environment,
): Promise<Store> {
  const cwd = `${dataDir}/redis`;
  await makePrivateDir(cwd);
  await requireNoRedis(cwd);
  const [port = 0] = findFreePorts(1);
  await writePrivateFile(`${cwd}/port`, String(port));
  const args = [
    ...["--bind", LOOPBACK, "--port", String(port), "--daemonize", "no"],
    ...["--appendonly", "yes", "--appendfsync", "always", "--save", ""],
    // An error is better than silently evicting keys.
    ...["--maxmemory-policy", "noeviction", "--loglevel", "notice"],
    ...["--pidfile", `${cwd}/pid`],
  ];
  return {
    url: `redis://${LOOPBACK}:${port}`,
    name: "redis",
    service: "redis",
    program: { file, args, env, cwd },
    readyText: "Ready to accept connections",
  };
}

/**
 * Throws an {@link UpError} if a Redis server of an earlier run may still use the
 * directory: a second one would destroy the data. One is only left when the
 * launcher and its watcher were both killed; one that stops removes its pid file.
 * After a crash of the machine, another program may have its port.
 */
async function requireNoRedis(dir: string): Promise<void> {
  const pid = await Deno.readTextFile(`${dir}/pid`).catch(() => "");
  const port = await Deno.readTextFile(`${dir}/port`).catch(() => "");
  if (pid === "" || isFreePort(Number(port))) return;
  throw new UpError(
    `A Redis server of an earlier run may still use ${dir}: port ${port} is busy\n` +
      `If process ${pid.trim()} is redis-server, stop it with: kill ${pid.trim()}\n` +
      `If not, delete ${dir}/pid`,
  );
}

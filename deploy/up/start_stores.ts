import { hideUserinfo } from "@gateway/shared/userinfo";
import type { Cluster } from "./cluster.ts";
import type { Program } from "./child.ts";
import { type EnsureDeps, ensureServers } from "./ensure_servers.ts";
import { requireNats, requireRedis } from "./external.ts";
import { NATS_SOFTWARE, REDIS_SOFTWARE } from "./install.ts";
import type { UpOptions } from "./options.ts";
import { findFreePorts } from "./ports.ts";
import { makePrivateDir, writePrivateFile } from "./private_file.ts";
import {
  natsConfig,
  natsStore,
  readRedisVersion,
  REDIS_TESTED,
  redisStore,
} from "./stores.ts";

/** Where NATS and Redis answer. */
export interface StoreUrls {
  natsUrl: string;
  redisUrl: string;
  /** False where `REDIS_URL` names somebody else's. */
  isPrivateRedis: boolean;
}

export interface StoreDeps extends EnsureDeps {
  cluster: Cluster;
  options: UpOptions;
  env: Readonly<Record<string, string>>;
}

/**
 * Starts private servers, or checks those that `NATS_URL` and `REDIS_URL` name;
 * both at once, and resolves when both answer.
 */
export async function startStores(deps: StoreDeps): Promise<StoreUrls> {
  const { NATS_URL, REDIS_URL } = deps.env;
  // An empty variable is how many tools say "not set".
  const natsUrl = NATS_URL || undefined;
  const redisUrl = REDIS_URL || undefined;
  const wanted = [
    ...(natsUrl ? [] : [NATS_SOFTWARE]),
    ...(redisUrl ? [] : [REDIS_SOFTWARE]),
  ];
  const paths = await ensureServers(wanted, deps);
  const path = (software: typeof NATS_SOFTWARE) =>
    paths[wanted.indexOf(software)] ?? software.name;
  sayStores(deps, natsUrl, redisUrl);
  const [natsPort = 0, redisPort = 0] = findFreePorts(2);
  const [nats, redis] = await Promise.all([
    natsUrl
      ? requireNats(natsUrl).then(() => natsUrl)
      : startNats(deps, path(NATS_SOFTWARE), natsPort),
    redisUrl
      ? requireRedis(redisUrl).then(() => redisUrl)
      : startRedis(deps, path(REDIS_SOFTWARE), redisPort),
  ]);
  return { natsUrl: nats, redisUrl: redis, isPrivateRedis: !redisUrl };
}

function sayStores(
  { out }: StoreDeps,
  natsUrl: string | undefined,
  redisUrl: string | undefined,
): void {
  const own = [
    ...(natsUrl ? [] : ["nats-server"]),
    ...(redisUrl ? [] : ["redis-server"]),
  ];
  if (own.length > 0) out.say(`Starting ${own.join(" and ")}`);
  if (natsUrl) out.say(`Using NATS at ${hideUserinfo(natsUrl)}`);
  if (redisUrl) out.say(`Using Redis at ${hideUserinfo(redisUrl)}`);
}

async function startNats(
  { cluster, options, env }: StoreDeps,
  path: string,
  port: number,
): Promise<string> {
  const configFile = `${options.runDir}/nats.conf`;
  await writePrivateFile(configFile, natsConfig(port));
  const base = { env, cwd: options.runDir };
  const { url, unit } = natsStore(path, port, configFile, base);
  await cluster.start(unit).firstReady;
  return url;
}

async function startRedis(
  { cluster, options, env, out }: StoreDeps,
  path: string,
  port: number,
): Promise<string> {
  const base: Omit<Program, "file" | "args"> = {
    env,
    cwd: `${options.dataDir}/redis`,
  };
  const [version] = await Promise.all([
    readRedisVersion(path),
    makePrivateDir(base.cwd),
  ]);
  if (isOlder(version, REDIS_TESTED)) {
    out.warn(
      `${path} is version ${version.join(".")}: the gateway is tested with ` +
        `${REDIS_TESTED.join(".")} and later`,
    );
  }
  const { url, unit } = redisStore(path, port, version, base);
  await cluster.start(unit).firstReady;
  return url;
}

function isOlder(
  [major, minor]: readonly [number, number],
  [wantedMajor, wantedMinor]: readonly [number, number],
): boolean {
  return major < wantedMajor || (major === wantedMajor && minor < wantedMinor);
}

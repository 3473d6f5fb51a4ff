import type { RedisAddress } from "@gateway/shared/redis/link";
import { hideUserinfo } from "@gateway/shared/process/userinfo";
import type { Cluster } from "./cluster.ts";
import type { Program } from "./child.ts";
import { type EnsureDeps, ensureServers } from "./ensure_servers.ts";
import { requireNats, requireRedis } from "./external.ts";
import { type GivenStores, readGivenStores } from "./given_stores.ts";
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
  redis: RedisAddress;
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
  const given = readGivenStores(deps.env);
  const wanted = [
    ...(given.natsUrl ? [] : [NATS_SOFTWARE]),
    ...(given.redis ? [] : [REDIS_SOFTWARE]),
  ];
  const paths = await ensureServers(wanted, deps);
  const path = (software: typeof NATS_SOFTWARE) =>
    paths[wanted.indexOf(software)] ?? software.name;
  sayStores(deps, given);
  const [natsPort = 0, redisPort = 0] = findFreePorts(2);
  const [natsUrl, redis] = await Promise.all([
    given.natsUrl
      ? requireNats(given.natsUrl)
      : startNats(deps, path(NATS_SOFTWARE), natsPort),
    given.redis
      ? requireRedis(given.redis)
      : startRedis(deps, path(REDIS_SOFTWARE), redisPort),
  ]);
  return { natsUrl, redis, isPrivateRedis: !given.redis };
}

function sayStores(
  { out }: StoreDeps,
  { natsUrl, redis }: GivenStores,
): void {
  const own = [
    ...(natsUrl ? [] : ["nats-server"]),
    ...(redis ? [] : ["redis-server"]),
  ];
  if (own.length > 0) out.say(`Starting ${own.join(" and ")}`);
  if (natsUrl) out.say(`Using NATS at ${hideUserinfo(natsUrl)}`);
  if (redis) out.say(`Using Redis at ${hideUserinfo(redis.url)}`);
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
): Promise<RedisAddress> {
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
  const { url, unit } = redisStore(path, port, base);
  await cluster.start(unit).firstReady;
  return { url };
}

function isOlder(
  [major, minor]: readonly [number, number],
  [wantedMajor, wantedMinor]: readonly [number, number],
): boolean {
  return major < wantedMajor || (major === wantedMajor && minor < wantedMinor);
}

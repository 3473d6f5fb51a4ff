/**
 * How a service reaches NATS and Redis: addresses, who signs in, whom to trust.
 * From the variables of `service_variables.ts` to what the two links take.
 */
import { ConfigError, type ConfigOf } from "./env.ts";
import type { NATS_VARIABLES, REDIS_VARIABLES } from "./service_variables.ts";

/** The part of the bus options that the operator decides. */
export interface BusAccess {
  servers: readonly string[];
  credentials?: { user: string; password: () => string } | { nkeySeed: string };
  tls?: { caFile?: string; certFile?: string; keyFile?: string };
}

/** Where Redis is, as `RedisAddress` of the link takes it. */
export interface RedisAccess {
  url: string;
  username?: string;
  password?: string;
  tlsCa?: string;
  tlsCert?: string;
  tlsKey?: string;
  sentinels?: {
    name: string;
    servers: readonly string[];
    username?: string;
    password?: string;
  };
}

/**
 * First token of each service's reply subjects. The server's permissions name
 * them, see `deploy/nats/nats.conf`, so they are no option.
 */
export const INBOX_PREFIXES = {
  edge: "_INBOX_edge",
  worker: "_INBOX_worker",
  admin: "_INBOX_admin",
} as const;

/** Throws a {@link ConfigError} when the variables contradict each other. */
export function busAccess(
  settings: ConfigOf<typeof NATS_VARIABLES>,
): BusAccess {
  const { natsCaFile, natsCertFile, natsKeyFile } = settings;
  checkPair("NATS_CERT_FILE", natsCertFile, "NATS_KEY_FILE", natsKeyFile);
  const tls = {
    ...(natsCaFile === undefined ? {} : { caFile: natsCaFile }),
    ...(natsCertFile === undefined ? {} : { certFile: natsCertFile }),
    ...(natsKeyFile === undefined ? {} : { keyFile: natsKeyFile }),
  };
  const credentials = busCredentials(settings);
  return {
    servers: settings.natsUrl,
    ...(credentials === undefined ? {} : { credentials }),
    ...(Object.keys(tls).length === 0 ? {} : { tls }),
  };
}

function busCredentials(
  { natsUser, natsPassword, natsNkeySeed }: ConfigOf<typeof NATS_VARIABLES>,
): BusAccess["credentials"] {
  checkPair("NATS_USER", natsUser, "NATS_PASSWORD", natsPassword);
  if (natsNkeySeed !== undefined) {
    if (natsUser !== undefined) {
      throw mistake("NATS_USER and NATS_NKEY_SEED are both set: choose one");
    }
    return { nkeySeed: natsNkeySeed };
  }
  if (natsUser === undefined || natsPassword === undefined) return undefined;
  return { user: natsUser, password: natsPassword };
}

/**
 * The certificates are read now. Throws a {@link ConfigError} for a file that
 * cannot be read, and for files without `rediss:`, which would not be used.
 */
export function redisAccess(
  settings: ConfigOf<typeof REDIS_VARIABLES>,
  readFile: (path: string) => string,
): RedisAccess {
  const { redisUrl, redisUsername, redisPassword } = settings;
  const { redisCaFile, redisCertFile, redisKeyFile } = settings;
  checkPair("REDIS_CERT_FILE", redisCertFile, "REDIS_KEY_FILE", redisKeyFile);
  if (redisUsername !== undefined && redisPassword === undefined) {
    throw mistake("REDIS_USERNAME is set, so REDIS_PASSWORD is needed");
  }
  const hasFiles = redisCaFile !== undefined || redisCertFile !== undefined;
  if (hasFiles && !redisUrl.startsWith("rediss:")) {
    throw mistake(
      "REDIS_CA_FILE and REDIS_CERT_FILE need a rediss:// REDIS_URL",
    );
  }
  const read = (name: string, path: string) => readPem(name, path, readFile);
  return {
    url: redisUrl,
    ...(redisUsername === undefined ? {} : { username: redisUsername }),
    ...(redisPassword === undefined ? {} : { password: redisPassword }),
    ...(redisCaFile === undefined
      ? {}
      : { tlsCa: read("REDIS_CA_FILE", redisCaFile) }),
    ...(redisCertFile === undefined || redisKeyFile === undefined ? {} : {
      tlsCert: read("REDIS_CERT_FILE", redisCertFile),
      tlsKey: read("REDIS_KEY_FILE", redisKeyFile),
    }),
    ...sentinelsOf(settings),
  };
}

function sentinelsOf(
  settings: ConfigOf<typeof REDIS_VARIABLES>,
): Pick<RedisAccess, "sentinels"> {
  const { redisSentinels, redisSentinelName } = settings;
  const { redisSentinelUsername, redisSentinelPassword } = settings;
  if (
    redisSentinelUsername !== undefined && redisSentinelPassword === undefined
  ) {
    throw mistake(
      "REDIS_SENTINEL_USERNAME is set, so REDIS_SENTINEL_PASSWORD is needed",
    );
  }
  if (redisSentinels.length === 0) return {};
  return {
    sentinels: {
      name: redisSentinelName,
      servers: redisSentinels,
      ...(redisSentinelUsername === undefined
        ? {}
        : { username: redisSentinelUsername }),
      ...(redisSentinelPassword === undefined
        ? {}
        : { password: redisSentinelPassword }),
    },
  };
}

function checkPair(
  firstName: string,
  first: unknown,
  secondName: string,
  second: unknown,
): void {
  if ((first === undefined) !== (second === undefined)) {
    throw mistake(`${firstName} and ${secondName} belong together: set both`);
  }
}

function readPem(
  name: string,
  path: string,
  readFile: (path: string) => string,
): string {
  try {
    return readFile(path);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw mistake(`${name}=${JSON.stringify(path)}\ncannot read it: ${why}`);
  }
}

function mistake(text: string): ConfigError {
  return new ConfigError("the environment", [text]);
}

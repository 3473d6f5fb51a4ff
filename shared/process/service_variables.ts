/** The variables that several services have. */
import { parseNetwork } from "./client_address.ts";
import {
  changingSecret,
  choice,
  integer,
  list,
  optional,
  path,
  port,
  secret,
  text,
  url,
  urls,
} from "./env.ts";
import { ConfigError, type ConfigOf, errorMessage } from "./env.ts";

const DAY_SECONDS = 86_400;

/** The operator's port, logging and shutdown. */
export const SERVICE_VARIABLES = {
  logLevel: choice({
    name: "LOG_LEVEL",
    meaning: "Lines below this level are not written",
    values: ["debug", "info", "warn", "error"],
    fallback: "info",
  }),
  opsHost: text({
    name: "OPS_HOST",
    meaning: "Address of the operator's port: health, readiness, metrics",
    fallback: "127.0.0.1",
  }),
  opsPort: port({
    name: "OPS_PORT",
    meaning: "The operator's port, which must never be public",
    fallback: 0,
  }),
  drainSeconds: integer({
    name: "DRAIN_SECONDS",
    meaning:
      "What is running when the service is told to stop may take this long",
    unit: "seconds",
    min: 0,
    max: DAY_SECONDS,
    fallback: 600,
  }),
};

const optionalText = (name: string, meaning: string) =>
  optional(text({ name, meaning }));
const optionalPath = (name: string, meaning: string) =>
  optional(path({ name, meaning }));
const optionalSecret = (name: string, meaning: string) =>
  optional(secret({ name, meaning }));

const OWN_CERTIFICATE =
  "PEM file of this service's own certificate, for mutual TLS";

/** Where NATS is and who connects. */
export const NATS_VARIABLES = {
  natsUrl: urls({
    name: "NATS_URL",
    meaning: "Servers of the NATS cluster; may hold user and password",
    protocols: ["nats:", "tls:"],
    fallback: ["nats://127.0.0.1:4222"],
    isSecret: true,
  }),
  natsUser: optionalText("NATS_USER", "This service's user at NATS"),
  natsPassword: optional(changingSecret({
    name: "NATS_PASSWORD",
    meaning:
      "Password of NATS_USER; from a file it is read anew at each connection",
  })),
  natsNkeySeed: optionalSecret(
    "NATS_NKEY_SEED",
    "Seed of an nkey, in place of user and password",
  ),
  natsCaFile: optionalPath(
    "NATS_CA_FILE",
    "PEM file of the authorities to trust; set at all, TLS is required",
  ),
  natsCertFile: optionalPath("NATS_CERT_FILE", OWN_CERTIFICATE),
  natsKeyFile: optionalPath(
    "NATS_KEY_FILE",
    "PEM file of the key of NATS_CERT_FILE",
  ),
} as const;

/** Where Redis is and who connects. */
export const REDIS_VARIABLES = {
  redisUrl: url({
    name: "REDIS_URL",
    meaning:
      "The Redis server; may hold user and password. With REDIS_SENTINELS its host does not count",
    protocols: ["redis:", "rediss:"],
    fallback: "redis://127.0.0.1:6379",
    isSecret: true,
  }),
  redisUsername: optionalText(
    "REDIS_USERNAME",
    "This service's user at Redis",
  ),
  redisPassword: optionalSecret(
    "REDIS_PASSWORD",
    "Password of REDIS_USERNAME",
  ),
  redisCaFile: optionalPath(
    "REDIS_CA_FILE",
    "PEM file of the authorities to trust with rediss://",
  ),
  redisCertFile: optionalPath("REDIS_CERT_FILE", OWN_CERTIFICATE),
  redisKeyFile: optionalPath(
    "REDIS_KEY_FILE",
    "PEM file of the key of REDIS_CERT_FILE",
  ),
  redisSentinels: list({
    name: "REDIS_SENTINELS",
    meaning:
      "Redis Sentinels that know the master; the service follows it through a failover",
    isWord: (word) => /^([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}$/.test(word),
    expects: "host:port of each, separated by commas",
    fallback: [],
  }),
  redisSentinelName: text({
    name: "REDIS_SENTINEL_NAME",
    meaning: "How the sentinels call the master",
    fallback: "gateway",
  }),
  redisSentinelUsername: optionalText(
    "REDIS_SENTINEL_USERNAME",
    "This service's user at the sentinels",
  ),
  redisSentinelPassword: optionalSecret(
    "REDIS_SENTINEL_PASSWORD",
    "Password of REDIS_SENTINEL_USERNAME",
  ),
} as const;

/** The proxies whose X-Forwarded-For is trusted. */
export const PROXY_VARIABLES = {
  trustedProxies: list({
    name: "TRUSTED_PROXIES",
    meaning:
      "Addresses or networks of the proxies whose X-Forwarded-For names the client",
    isWord: (word) => parseNetwork(word) !== null,
    expects: "IP addresses or networks (10.0.0.0/8) separated by commas",
    fallback: [],
  }),
};

/** Where a service listens for its clients. */
export function listenVariables(
  fallbackPort: number,
) {
  return {
    host: text({
      name: "HOST",
      meaning: "Address to listen on",
      fallback: "0.0.0.0",
    }),
    port: port({
      name: "PORT",
      meaning: "Where clients connect",
      fallback: fallbackPort,
    }),
  };
}

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
export function busAccess(env: ConfigOf<typeof NATS_VARIABLES>): BusAccess {
  const { natsUser: user, natsPassword: password, natsNkeySeed: nkeySeed } =
    env;
  const { natsCaFile: caFile, natsCertFile: certFile, natsKeyFile: keyFile } =
    env;
  checkPair("NATS_CERT_FILE", certFile, "NATS_KEY_FILE", keyFile);
  checkPair("NATS_USER", user, "NATS_PASSWORD", password);
  if (user !== undefined && nkeySeed !== undefined) {
    throw mistake("NATS_USER and NATS_NKEY_SEED are both set: choose one");
  }
  const tls = defined({ caFile, certFile, keyFile });
  return {
    servers: env.natsUrl,
    ...(nkeySeed === undefined ? {} : { credentials: { nkeySeed } }),
    ...(user === undefined || password === undefined
      ? {}
      : { credentials: { user, password } }),
    ...(Object.keys(tls).length === 0 ? {} : { tls }),
  };
}

/**
 * The certificates are read now. Throws a {@link ConfigError} for a file that
 * cannot be read, and for files without `rediss:`, which would not be used.
 */
export function redisAccess(
  env: ConfigOf<typeof REDIS_VARIABLES>,
  readFile: (path: string) => string,
): RedisAccess {
  const { redisUrl: url, redisUsername, redisPassword } = env;
  const { redisCaFile, redisCertFile, redisKeyFile } = env;
  const { redisSentinelUsername, redisSentinelPassword } = env;
  checkPair("REDIS_CERT_FILE", redisCertFile, "REDIS_KEY_FILE", redisKeyFile);
  checkPassword("REDIS", redisUsername, redisPassword);
  checkPassword("REDIS_SENTINEL", redisSentinelUsername, redisSentinelPassword);
  const hasFiles = redisCaFile !== undefined || redisCertFile !== undefined;
  if (hasFiles && !url.startsWith("rediss:")) {
    throw mistake(
      "REDIS_CA_FILE and REDIS_CERT_FILE need a rediss:// REDIS_URL",
    );
  }
  const pem = (name: string, path: string | undefined) => {
    if (path === undefined) return undefined;
    try {
      return readFile(path);
    } catch (error) {
      const why = errorMessage(error);
      throw mistake(`${name}=${JSON.stringify(path)}\ncannot read it: ${why}`);
    }
  };
  return {
    url,
    ...defined({
      username: redisUsername,
      password: redisPassword,
      tlsCa: pem("REDIS_CA_FILE", redisCaFile),
      tlsCert: pem("REDIS_CERT_FILE", redisCertFile),
      tlsKey: pem("REDIS_KEY_FILE", redisKeyFile),
      sentinels: env.redisSentinels.length === 0 ? undefined : {
        name: env.redisSentinelName,
        servers: env.redisSentinels,
        ...defined({
          username: redisSentinelUsername,
          password: redisSentinelPassword,
        }),
      },
    }),
  };
}

/** The object without the members that are undefined. */
function defined<T extends object>(
  members: T,
): { [K in keyof T]?: Exclude<T[K], undefined> };
function defined(members: object): object {
  return Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== undefined),
  );
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

/** A password without a user belongs to the user `default`. */
function checkPassword(name: string, user: unknown, password: unknown): void {
  if (user !== undefined && password === undefined) {
    throw mistake(`${name}_USERNAME is set, so ${name}_PASSWORD is needed`);
  }
}

function mistake(text: string): ConfigError {
  return new ConfigError("the environment", [text]);
}

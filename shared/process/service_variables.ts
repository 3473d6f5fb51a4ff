/** The variables that several services share. */
import { parseNetwork } from "./client_address.ts";
import * as read from "./env.ts";
import { LOG_LEVELS } from "./log.ts";

export const COMMON_VARIABLES = {
  LOG_LEVEL: read.choice(LOG_LEVELS).default("info")
    .describe("Lines below this level are not written"),
  OPS_HOST: read.text().default("127.0.0.1")
    .describe("Address of the operations port: health, readiness, metrics"),
  OPS_PORT: read.port().default(0)
    .describe("Operations port, which must never be public"),
  DRAIN_SECONDS: read.integer("seconds", { min: 0, max: 86_400 }).default(600)
    .describe("How long running work may take to finish after SIGTERM"),
};

export const REQUEST_LOG_VARIABLES = {
  LOG_SAMPLE: read.share().default(1).describe(
    "Share of the requests that end well whose log lines are written, the same requests in all services; failures always are",
  ),
};

const OWN_CERTIFICATE =
  "PEM file of the certificate of this service, for mutual TLS";

export const NATS_VARIABLES = {
  NATS_URL: read.secretUrls(["nats:", "tls:"])
    .default(["nats://127.0.0.1:4222"])
    .describe("All servers of the NATS cluster; may contain user and password"),
  NATS_USER: read.text().optional().describe("NATS user of this service"),
  NATS_PASSWORD: read.changingSecret().optional().describe(
    "Password of NATS_USER; if it is in a file, it is read again for each connection",
  ),
  NATS_CA_FILE: read.path().optional().describe(
    "PEM file of the authorities to trust; if set, TLS is required",
  ),
  NATS_CERT_FILE: read.path().optional().describe(OWN_CERTIFICATE),
  NATS_KEY_FILE: read.path().optional()
    .describe("PEM file of the key of NATS_CERT_FILE"),
};

export const REDIS_VARIABLES = {
  REDIS_URL: read.hidden(read.url(["redis:", "rediss:"]))
    .default("redis://127.0.0.1:6379").describe(
      "The Redis server; may contain user and password. With REDIS_SENTINELS its host is ignored",
    ),
  REDIS_USERNAME: read.text().optional().describe("Redis user of this service"),
  REDIS_PASSWORD: read.secret().optional().describe(
    "Password of REDIS_USERNAME",
  ),
  REDIS_CA_FILE: read.file().optional()
    .describe("PEM file of the authorities to trust with rediss://"),
  REDIS_CERT_FILE: read.file().optional().describe(OWN_CERTIFICATE),
  REDIS_KEY_FILE: read.file().optional()
    .describe("PEM file of the key of REDIS_CERT_FILE"),
  REDIS_SENTINELS: read.list(
    "host:port of each,",
    read.matching(/^([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}$/),
  ).default([]).describe(
    "Redis Sentinels; the service follows the master through a failover",
  ),
  REDIS_SENTINEL_NAME: read.text().default("gateway")
    .describe("Name of the master at the sentinels"),
  REDIS_SENTINEL_USERNAME: read.text().optional()
    .describe("Sentinel user of this service"),
  REDIS_SENTINEL_PASSWORD: read.secret().optional()
    .describe("Password of REDIS_SENTINEL_USERNAME"),
};

export const PROXY_VARIABLES = {
  TRUSTED_PROXIES: read
    .list("IP addresses or networks (10.0.0.0/8)", parseNetwork).default([])
    .describe(
      "Addresses or networks of the proxies whose X-Forwarded-For is trusted",
    ),
};

export function listenVariables(defaultPort: number) {
  return {
    HOST: read.text().default("0.0.0.0").describe("Address to listen on"),
    PORT: read.port().default(defaultPort).describe("Port for clients"),
  };
}

/**
 * First token of each service's reply subjects, as in the permissions of
 * `deploy/nats/nats.conf`.
 */
export const INBOX_PREFIXES = {
  edge: "_INBOX_edge",
  chat: "_INBOX_worker",
  media: "_INBOX_media",
  admin: "_INBOX_admin",
} as const;

/** The part of the bus options that the operator configures. */
export type BusAccess = ReturnType<typeof busAccess>;

/** Throws a `ConfigError` if the variables contradict each other. */
export function busAccess(env: read.ConfigOf<typeof NATS_VARIABLES>) {
  const { NATS_USER: user, NATS_PASSWORD: password } = env;
  refuse({
    "NATS_CERT_FILE and NATS_KEY_FILE belong together: set both":
      !env.NATS_CERT_FILE !== !env.NATS_KEY_FILE,
    "NATS_USER and NATS_PASSWORD belong together: set both":
      !user !== !password,
  });
  const { NATS_CA_FILE: caFile, NATS_CERT_FILE: certFile } = env;
  const isTls = caFile || certFile;
  return {
    servers: env.NATS_URL,
    ...user && password && { credentials: { user, password } },
    ...isTls && {
      tls: read.defined({ caFile, certFile, keyFile: env.NATS_KEY_FILE }),
    },
  };
}

/** Throws a `ConfigError` if the variables contradict each other. */
export function redisAccess(env: read.ConfigOf<typeof REDIS_VARIABLES>) {
  refuse({
    "REDIS_CERT_FILE and REDIS_KEY_FILE belong together: set both":
      !env.REDIS_CERT_FILE !== !env.REDIS_KEY_FILE,
    "REDIS_USERNAME is set, so REDIS_PASSWORD is needed":
      // A password without a user belongs to the user `default`.
      env.REDIS_USERNAME && !env.REDIS_PASSWORD,
    "REDIS_SENTINEL_USERNAME is set, so REDIS_SENTINEL_PASSWORD is needed":
      env.REDIS_SENTINEL_USERNAME && !env.REDIS_SENTINEL_PASSWORD,
    "REDIS_CA_FILE and REDIS_CERT_FILE need a rediss:// REDIS_URL":
      (env.REDIS_CA_FILE || env.REDIS_CERT_FILE) &&
      !env.REDIS_URL.startsWith("rediss:"),
  });
  const sentinels = {
    name: env.REDIS_SENTINEL_NAME,
    servers: env.REDIS_SENTINELS,
    ...read.defined({
      username: env.REDIS_SENTINEL_USERNAME,
      password: env.REDIS_SENTINEL_PASSWORD,
    }),
  };
  return {
    url: env.REDIS_URL,
    ...read.defined({
      username: env.REDIS_USERNAME,
      password: env.REDIS_PASSWORD,
      tlsCa: env.REDIS_CA_FILE,
      tlsCert: env.REDIS_CERT_FILE,
      tlsKey: env.REDIS_KEY_FILE,
    }),
    ...sentinels.servers.length > 0 && { sentinels },
  };
}

/** Throws a `ConfigError` with the mistakes whose condition is true. */
function refuse(mistakes: { readonly [text: string]: unknown }): void {
  const made = Object.keys(mistakes).filter((text) => mistakes[text]);
  if (made.length > 0) throw new read.ConfigError("the environment", made);
}

/**
 * The variables that several services share, and the access to NATS and Redis that they
 * describe. Only the `config.ts` of a service reads them.
 */
import { parseNetwork } from "./client_address.ts";
import * as env from "./env.ts";
import { LOG_LEVELS } from "./log.ts";

/** What every service reads: its log, its operations port, and the time to drain. */
export const COMMON_VARIABLES = {
  LOG_LEVEL: env.choice(LOG_LEVELS).default("info")
    .describe("Lines below this level are not written"),
  OPS_HOST: env.text().default("127.0.0.1")
    .describe("Address of the operations port: health, readiness, metrics"),
  OPS_PORT: env.port().default(0)
    .describe("Operations port, which must never be public"),
  DRAIN_SECONDS: env.integer("seconds", { min: 0, max: 86_400 }).default(600)
    .describe("How long running work may take to finish after SIGTERM"),
};

/** The log of services that many requests pass through. */
export const REQUEST_LOG_VARIABLES = {
  LOG_SAMPLE: env.share().default(1).describe(
    "Share of the requests that end well whose log lines are written, the same requests in all services; failures always are",
  ),
};

const OWN_CERTIFICATE =
  "PEM file of the certificate of this service, for mutual TLS";

/** The servers of a NATS cluster: URLs, which may contain user and password. */
export const natsUrls = () => env.secretUrls(["nats:", "tls:"]);

/** A Redis server, which may contain user, password and number of the database. */
export const redisUrl = () =>
  env.hidden(env.url(["redis:", "rediss:"], {
    path: /^(\/\d*)?$/,
    says: "with nothing but the number of a database after the host",
  }));

/** How to reach NATS; {@link busAccess} checks them together. */
export const NATS_VARIABLES = {
  NATS_URL: natsUrls()
    .default(["nats://127.0.0.1:4222"])
    .describe("All servers of the NATS cluster; may contain user and password"),
  NATS_USER: env.text().optional().describe("NATS user of this service"),
  NATS_PASSWORD: env.changingSecret().optional().describe(
    "Password of NATS_USER; if it is in a file, it is read again for each connection",
  ),
  NATS_CA_FILE: env.path().optional().describe(
    "PEM file of the authorities to trust; if set, TLS is required",
  ),
  NATS_CERT_FILE: env.path().optional().describe(OWN_CERTIFICATE),
  NATS_KEY_FILE: env.path().optional()
    .describe("PEM file of the key of NATS_CERT_FILE"),
};

/** How to reach Redis; {@link redisAccess} checks them together. */
export const REDIS_VARIABLES = {
  REDIS_URL: redisUrl()
    .default("redis://127.0.0.1:6379").describe(
      "The Redis server; may contain user and password. With REDIS_SENTINELS its host is ignored",
    ),
  REDIS_USERNAME: env.text().optional().describe("Redis user of this service"),
  REDIS_PASSWORD: env.secret().optional().describe(
    "Password of REDIS_USERNAME",
  ),
  REDIS_CA_FILE: env.file().optional()
    .describe("PEM file of the authorities to trust with rediss://"),
  REDIS_CERT_FILE: env.file().optional().describe(OWN_CERTIFICATE),
  REDIS_KEY_FILE: env.file().optional()
    .describe("PEM file of the key of REDIS_CERT_FILE"),
  REDIS_SENTINELS: env.list(
    "host:port of each,",
    env.matching(/^([\w.-]+|\[[\da-fA-F:.]+\]):\d{1,5}$/),
  ).default([]).describe(
    "Redis Sentinels; the service follows the master through a failover",
  ),
  REDIS_SENTINEL_NAME: env.text().default("gateway")
    .describe("Name of the master at the sentinels"),
  REDIS_SENTINEL_USERNAME: env.text().optional()
    .describe("Sentinel user of this service"),
  REDIS_SENTINEL_PASSWORD: env.secret().optional()
    .describe("Password of REDIS_SENTINEL_USERNAME"),
};

/** The proxies in front of a service that people or programs connect to. */
export const PROXY_VARIABLES = {
  TRUSTED_PROXIES: env
    .list("IP addresses or networks (10.0.0.0/8)", parseNetwork).default([])
    .describe(
      "Addresses or networks of the proxies whose X-Forwarded-For is trusted",
    ),
};

/** Address and port at which a service listens for its clients. */
export function listenVariables(defaultPort: number) {
  return {
    HOST: env.text().default("0.0.0.0").describe("Address to listen on"),
    PORT: env.port().default(defaultPort).describe("Port for clients"),
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

/** How a service reaches NATS, as the operator says. */
export interface BusAccess {
  /** URLs of all servers of the cluster; they may contain user and password. */
  servers: readonly string[];
  /** Absent without `NATS_USER`. */
  credentials?: {
    user: string;
    /** Returns the present password, which may be rotated while the service runs. */
    password: () => string;
  };
  /** Paths of PEM files. Absent for a connection that may be without TLS. */
  tls?: { caFile?: string; certFile?: string; keyFile?: string };
}

/**
 * How to reach NATS, by the values of {@link NATS_VARIABLES}. Throws a `ConfigError` if
 * they contradict each other.
 */
export function busAccess(
  values: env.ConfigOf<typeof NATS_VARIABLES>,
): BusAccess {
  const { NATS_USER: user, NATS_PASSWORD: password } = values;
  refuse({
    "NATS_CERT_FILE and NATS_KEY_FILE belong together: set both":
      !values.NATS_CERT_FILE !== !values.NATS_KEY_FILE,
    "NATS_USER and NATS_PASSWORD belong together: set both":
      !user !== !password,
  });
  const access: BusAccess = { servers: values.NATS_URL };
  if (user && password) access.credentials = { user, password };
  const { NATS_CA_FILE: caFile, NATS_CERT_FILE: certFile } = values;
  if (caFile || certFile) {
    access.tls = env.defined({
      caFile,
      certFile,
      keyFile: values.NATS_KEY_FILE,
    });
  }
  return access;
}

/** How a service reaches Redis, as the operator says. */
export interface RedisAccess {
  /** `redis:` or `rediss:`; may contain user, password and number of the database. */
  url: string;
  username?: string;
  password?: string;
  /** Content of the PEM file of the authorities to trust with `rediss:`. */
  tlsCa?: string;
  /** Content of the PEM file of this service's own certificate. */
  tlsCert?: string;
  /** Content of the PEM file of the key of `tlsCert`. */
  tlsKey?: string;
  /**
   * If set, the sentinels are asked for the master at every attempt to connect; only
   * protocol, user and database of `url` then count.
   */
  sentinels?: RedisSentinels;
}

/** The Redis Sentinels of an installation, with the sign-in of their own. */
export interface RedisSentinels {
  /** Name of the master at the sentinels. */
  name: string;
  /** `host:port` of each sentinel. */
  servers: readonly string[];
  username?: string;
  password?: string;
}

/**
 * How to reach Redis, by the values of {@link REDIS_VARIABLES}. Throws a `ConfigError`
 * if they contradict each other.
 */
export function redisAccess(
  values: env.ConfigOf<typeof REDIS_VARIABLES>,
): RedisAccess {
  refuse({
    "REDIS_CERT_FILE and REDIS_KEY_FILE belong together: set both":
      !values.REDIS_CERT_FILE !== !values.REDIS_KEY_FILE,
    "REDIS_USERNAME is set, so REDIS_PASSWORD is needed":
      // A password without a user belongs to the user `default`.
      values.REDIS_USERNAME && !values.REDIS_PASSWORD,
    "REDIS_SENTINEL_USERNAME is set, so REDIS_SENTINEL_PASSWORD is needed":
      values.REDIS_SENTINEL_USERNAME && !values.REDIS_SENTINEL_PASSWORD,
    "REDIS_CA_FILE and REDIS_CERT_FILE need a rediss:// REDIS_URL":
      (values.REDIS_CA_FILE || values.REDIS_CERT_FILE) &&
      !values.REDIS_URL.startsWith("rediss:"),
  });
  const access: RedisAccess = {
    url: values.REDIS_URL,
    ...env.defined({
      username: values.REDIS_USERNAME,
      password: values.REDIS_PASSWORD,
      tlsCa: values.REDIS_CA_FILE,
      tlsCert: values.REDIS_CERT_FILE,
      tlsKey: values.REDIS_KEY_FILE,
    }),
  };
  if (values.REDIS_SENTINELS.length > 0) {
    access.sentinels = {
      name: values.REDIS_SENTINEL_NAME,
      servers: values.REDIS_SENTINELS,
      ...env.defined({
        username: values.REDIS_SENTINEL_USERNAME,
        password: values.REDIS_SENTINEL_PASSWORD,
      }),
    };
  }
  return access;
}

/** Throws a `ConfigError` with the mistakes whose condition is true. */
function refuse(mistakes: { readonly [text: string]: unknown }): void {
  const texts = Object.keys(mistakes).filter((text) => mistakes[text]);
  if (texts.length > 0) throw new env.ConfigError("the environment", texts);
}

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
  type Variable,
} from "./env.ts";
import type { LogLevel } from "./log.ts";

const DAY_SECONDS = 86_400;

/** Where a service's own door for operators is, and how it logs and stops. */
export const SERVICE_VARIABLES: {
  readonly logLevel: Variable<LogLevel>;
  readonly opsHost: Variable<string>;
  readonly opsPort: Variable<number>;
  readonly drainSeconds: Variable<number>;
} = {
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

/** Where NATS is and who connects. */
export const NATS_VARIABLES: {
  readonly natsUrl: Variable<readonly string[]>;
  readonly natsUser: Variable<string | undefined>;
  readonly natsPassword: Variable<(() => string) | undefined>;
  readonly natsNkeySeed: Variable<string | undefined>;
  readonly natsCaFile: Variable<string | undefined>;
  readonly natsCertFile: Variable<string | undefined>;
  readonly natsKeyFile: Variable<string | undefined>;
} = {
  natsUrl: urls({
    name: "NATS_URL",
    meaning: "Servers of the NATS cluster; may hold user and password",
    protocols: ["nats:", "tls:"],
    fallback: ["nats://127.0.0.1:4222"],
    isSecret: true,
  }),
  natsUser: optional(text({
    name: "NATS_USER",
    meaning: "This service's user at NATS",
  })),
  natsPassword: optional(changingSecret({
    name: "NATS_PASSWORD",
    meaning:
      "Password of NATS_USER; from a file it is read anew at each connection",
  })),
  natsNkeySeed: optional(secret({
    name: "NATS_NKEY_SEED",
    meaning: "Seed of an nkey, in place of user and password",
  })),
  natsCaFile: optional(path({
    name: "NATS_CA_FILE",
    meaning:
      "PEM file of the authorities to trust; set at all, TLS is required",
  })),
  natsCertFile: optional(path({
    name: "NATS_CERT_FILE",
    meaning: "PEM file of this service's own certificate, for mutual TLS",
  })),
  natsKeyFile: optional(path({
    name: "NATS_KEY_FILE",
    meaning: "PEM file of the key of NATS_CERT_FILE",
  })),
};

/** Where Redis is and who connects. */
export const REDIS_VARIABLES: {
  readonly redisUrl: Variable<string>;
  readonly redisUsername: Variable<string | undefined>;
  readonly redisPassword: Variable<string | undefined>;
  readonly redisCaFile: Variable<string | undefined>;
  readonly redisCertFile: Variable<string | undefined>;
  readonly redisKeyFile: Variable<string | undefined>;
  readonly redisSentinels: Variable<readonly string[]>;
  readonly redisSentinelName: Variable<string>;
  readonly redisSentinelUsername: Variable<string | undefined>;
  readonly redisSentinelPassword: Variable<string | undefined>;
} = {
  redisUrl: url({
    name: "REDIS_URL",
    meaning:
      "The Redis server; may hold user and password. With REDIS_SENTINELS its host does not count",
    protocols: ["redis:", "rediss:"],
    fallback: "redis://127.0.0.1:6379",
    isSecret: true,
  }),
  redisUsername: optional(text({
    name: "REDIS_USERNAME",
    meaning: "This service's user at Redis",
  })),
  redisPassword: optional(secret({
    name: "REDIS_PASSWORD",
    meaning: "Password of REDIS_USERNAME",
  })),
  redisCaFile: optional(path({
    name: "REDIS_CA_FILE",
    meaning: "PEM file of the authorities to trust with rediss://",
  })),
  redisCertFile: optional(path({
    name: "REDIS_CERT_FILE",
    meaning: "PEM file of this service's own certificate, for mutual TLS",
  })),
  redisKeyFile: optional(path({
    name: "REDIS_KEY_FILE",
    meaning: "PEM file of the key of REDIS_CERT_FILE",
  })),
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
  redisSentinelUsername: optional(text({
    name: "REDIS_SENTINEL_USERNAME",
    meaning: "This service's user at the sentinels",
  })),
  redisSentinelPassword: optional(secret({
    name: "REDIS_SENTINEL_PASSWORD",
    meaning: "Password of REDIS_SENTINEL_USERNAME",
  })),
};

/** Who may name the client; for services with a door that a proxy stands before. */
export const PROXY_VARIABLES: {
  readonly trustedProxies: Variable<readonly string[]>;
} = {
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
): { readonly host: Variable<string>; readonly port: Variable<number> } {
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

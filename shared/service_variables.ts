/** The variables that every service has. */
import {
  choice,
  integer,
  port,
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
} = {
  natsUrl: urls({
    name: "NATS_URL",
    meaning: "Servers of the NATS cluster; may hold user and password",
    protocols: ["nats:", "tls:"],
    fallback: ["nats://127.0.0.1:4222"],
    isSecret: true,
  }),
};

/** Where Redis is. */
export const REDIS_VARIABLES: {
  readonly redisUrl: Variable<string>;
} = {
  redisUrl: url({
    name: "REDIS_URL",
    meaning: "The Redis server; may hold user and password",
    protocols: ["redis:", "rediss:"],
    fallback: "redis://127.0.0.1:6379",
    isSecret: true,
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

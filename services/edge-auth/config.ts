/** The one place of this service that reads the environment. */
import {
  type Network,
  networksOf,
} from "@gateway/shared/process/client_address";
import {
  type ConfigOf,
  integer,
  list,
  optional,
  parseEnv,
  port,
} from "@gateway/shared/process/env";
import {
  DISPATCH_LIMITS,
  KEY_LIMITS,
  REQUEST_LIMITS,
  SSE_LIMITS,
} from "@gateway/shared/limits";
import type { LogLevel } from "@gateway/shared/process/log";
import type { Catalog } from "@gateway/shared/models/catalog";
import {
  CATALOG_VARIABLES,
  catalogOf,
} from "@gateway/shared/models/catalog_variables";
import type { RedisAddress } from "@gateway/shared/redis/link";
import {
  listenVariables,
  NATS_VARIABLES,
  PROXY_VARIABLES,
  REDIS_VARIABLES,
  SERVICE_VARIABLES,
} from "@gateway/shared/process/service_variables";
import {
  type BusAccess,
  busAccess,
  redisAccess,
} from "@gateway/shared/process/service_variables";

const DEFAULT_PORT = 8080;
const MS_PER_SECOND = 1_000;

/** Every variable of the edge. */
export const EDGE_VARIABLES = {
  ...listenVariables(DEFAULT_PORT),
  ...SERVICE_VARIABLES,
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
  ...CATALOG_VARIABLES,
  bodyBytesMax: integer({
    name: "BODY_BYTES_MAX",
    meaning: "Largest request body; beyond it 413",
    unit: "bytes",
    min: 1_024,
    max: 256 * 1_024 * 1_024,
    fallback: REQUEST_LIMITS.bodyBytesMax,
  }),
  bodiesBytesMax: integer({
    name: "BODIES_BYTES_MAX",
    meaning:
      "Request bodies that this edge holds at a time; beyond it the slowest gets 503. A key may hold a quarter; beyond it 429",
    unit: "bytes",
    min: 1_024,
    max: 64 * 1_024 * 1_024 * 1_024,
    fallback: REQUEST_LIMITS.bodiesBytesMax,
  }),
  queueMax: integer({
    name: "QUEUE_MAX",
    meaning: "Requests that may wait for a free worker, two seconds at most",
    unit: "requests",
    min: 0,
    max: 100_000,
    fallback: DISPATCH_LIMITS.queueMax,
  }),
  requestTimeoutSeconds: integer({
    name: "REQUEST_TIMEOUT_SECONDS",
    meaning: "A request is over after this long, whatever it does",
    unit: "seconds",
    min: 1,
    max: 86_400,
    fallback: 600,
  }),
  streamHeadSeconds: integer({
    name: "STREAM_HEAD_SECONDS",
    meaning:
      "A stream without a first token is opened with keep-alive comments after this long, so that no proxy cuts it; 0 = never. A later failure is an event of the stream instead of an HTTP error",
    unit: "seconds",
    min: 0,
    max: 86_400,
    fallback: SSE_LIMITS.headMs / MS_PER_SECOND,
  }),
  unknownKeysPerSecond: integer({
    name: "UNKNOWN_KEYS_PER_SECOND",
    meaning:
      "Keys of a client address that an edge looks up and does not find, per second; more of them wait, then 429",
    unit: "keys",
    min: 1,
    max: 1_000_000,
    fallback: KEY_LIMITS.unknownPerSecond,
  }),
  ...PROXY_VARIABLES,
  readyPort: optional(port({
    name: "READY_PORT",
    meaning:
      "A port that is open only while this edge takes requests: a proxy that connects to it before it sends one loses none",
  })),
  drainLeadSeconds: integer({
    name: "DRAIN_LEAD_SECONDS",
    meaning:
      "Told to stop, the edge says so (readiness, READY_PORT, Connection: close) and goes on taking requests for this long, until the last proxy has noticed",
    unit: "seconds",
    min: 0,
    max: 300,
    fallback: 0,
  }),
  allowedHosts: list({
    name: "ALLOWED_HOSTS",
    meaning:
      "Names that clients call this service by, with or without port; others get 421",
    isWord: (word) => /^[\w.:[\]-]+$/.test(word),
    expects: "host names separated by commas",
    fallback: [],
  }),
  corsOrigins: list({
    name: "CORS_ORIGINS",
    meaning: "Origins of web pages that may call this service",
    isWord: (word) => /^https?:\/\/[^/?#@]+$/.test(word),
    expects: "origins (https://app.example.org) separated by commas",
    fallback: [],
  }),
} as const;

/** What the edge was told, in the units and shapes its code uses. */
export interface EdgeConfig {
  logLevel: LogLevel;
  hostname: string;
  port: number;
  ops: { hostname: string; port: number };
  bus: BusAccess;
  redis: RedisAddress;
  catalog: Catalog;
  bodyBytesMax: number;
  bodiesBytesMax: number;
  queueMax: number;
  requestTimeoutMs: number;
  streamHeadMs: number;
  unknownKeysPerSecond: number;
  trustedProxies: readonly Network[];
  allowedHosts: readonly string[];
  corsOrigins: readonly string[];
  drain: { readyPort: number | null; leadMs: number };
  drainMs: number;
}

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig(): EdgeConfig {
  return toConfig(parseEnv(
    EDGE_VARIABLES,
    Deno.env.toObject(),
    Deno.readTextFileSync,
  ));
}

function toConfig(env: ConfigOf<typeof EDGE_VARIABLES>): EdgeConfig {
  return {
    logLevel: env.logLevel,
    hostname: env.host,
    port: env.port,
    ops: { hostname: env.opsHost, port: env.opsPort },
    bus: busAccess(env),
    redis: {
      ...redisAccess(env, Deno.readTextFileSync),
      clientName: "edge-auth",
    },
    // Which models there are is the edge's business, their keys are not.
    catalog: catalogOf(env, Deno.readTextFileSync, false),
    bodyBytesMax: env.bodyBytesMax,
    bodiesBytesMax: env.bodiesBytesMax,
    queueMax: env.queueMax,
    requestTimeoutMs: env.requestTimeoutSeconds * MS_PER_SECOND,
    streamHeadMs: env.streamHeadSeconds * MS_PER_SECOND,
    unknownKeysPerSecond: env.unknownKeysPerSecond,
    trustedProxies: networksOf(env.trustedProxies),
    allowedHosts: env.allowedHosts,
    corsOrigins: env.corsOrigins,
    drain: {
      readyPort: env.readyPort ?? null,
      leadMs: env.drainLeadSeconds * MS_PER_SECOND,
    },
    drainMs: env.drainSeconds * MS_PER_SECOND,
  };
}

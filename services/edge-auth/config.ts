/** The only file of this service that reads the environment. */
import * as read from "@gateway/shared/process/env";
import { KEY_LIMITS, REQUEST_LIMITS, SSE_LIMITS } from "@gateway/shared/limits";
import * as catalogVariables from "@gateway/shared/models/catalog_variables";
import * as serviceVariables from "@gateway/shared/process/service_variables";

const DEFAULT_PORT = 8080;
const MS_PER_SECOND = 1_000;
const DAY_SECONDS = 86_400;
const KIB = 1_024;
const GIB = KIB ** 3;

export const EDGE_VARIABLES = {
  ...serviceVariables.listenVariables(DEFAULT_PORT),
  ...serviceVariables.COMMON_VARIABLES,
  ...serviceVariables.REQUEST_LOG_VARIABLES,
  ...serviceVariables.NATS_VARIABLES,
  ...serviceVariables.REDIS_VARIABLES,
  ...catalogVariables.CATALOG_VARIABLES,
  BODY_BYTES_MAX: read.integer("bytes", { min: KIB, max: GIB / 4 })
    .default(REQUEST_LIMITS.bodyBytesMax)
    .describe("Largest request body; a larger one gets 413"),
  BODIES_BYTES_MAX: read.integer("bytes", { min: KIB, max: 64 * GIB })
    .default(REQUEST_LIMITS.bodiesBytesMax).describe(
      "Request bodies that this edge holds at a time; beyond that the oldest gets 503. Each key may hold a quarter; beyond that it gets 429",
    ),
  REQUEST_TIMEOUT_SECONDS: read.integer("seconds", { min: 1, max: DAY_SECONDS })
    .default(600)
    .describe("A request is ended after this long, in any state"),
  STREAM_HEAD_SECONDS: read.integer("seconds", { min: 0, max: DAY_SECONDS })
    .default(SSE_LIMITS.headMs / MS_PER_SECOND).describe(
      "A stream without a first token is opened with keep-alive comments after this long, so that no proxy cuts it; 0 = never. A later failure is an event of the stream instead of an HTTP error",
    ),
  UNKNOWN_KEYS_PER_SECOND: read.integer("keys", { min: 1, max: 1_000_000 })
    .default(KEY_LIMITS.unknownPerSecond).describe(
      "Unknown keys that an edge looks up for one client address, per second; beyond that 429",
    ),
  ...serviceVariables.PROXY_VARIABLES,
  READY_PORT: read.port().optional().describe(
    "A port that is open only while this edge accepts requests: a proxy that connects to it before forwarding each request loses none",
  ),
  DRAIN_LEAD_SECONDS: read.integer("seconds", { min: 0, max: 300 }).default(0)
    .describe(
      "On SIGTERM the edge announces that it stops (readiness, READY_PORT, Connection: close) and keeps accepting requests for this long, until every proxy has noticed",
    ),
  CORS_ORIGINS: read.list(
    "origins (https://app.example.org)",
    read.matching(/^https?:\/\/[^/?#@]+$/),
  ).default([])
    .describe("Origins of web pages that may call this service"),
};

export type EdgeConfig = ReturnType<typeof readConfig>;

export function readConfig() {
  const given = Deno.env.toObject();
  const env = read.parseEnv(EDGE_VARIABLES, given, Deno.readTextFileSync);
  return {
    logLevel: env.LOG_LEVEL,
    logSample: env.LOG_SAMPLE,
    hostname: env.HOST,
    port: env.PORT,
    ops: { hostname: env.OPS_HOST, port: env.OPS_PORT },
    bus: serviceVariables.busAccess(env),
    redis: { ...serviceVariables.redisAccess(env), clientName: "edge-auth" },
    // The edge needs the list of models, but not the keys of their backends.
    catalog: catalogVariables.catalogOf(env, false),
    bodyBytesMax: env.BODY_BYTES_MAX,
    bodiesBytesMax: env.BODIES_BYTES_MAX,
    requestTimeoutMs: env.REQUEST_TIMEOUT_SECONDS * MS_PER_SECOND,
    streamHeadMs: env.STREAM_HEAD_SECONDS * MS_PER_SECOND,
    unknownKeysPerSecond: env.UNKNOWN_KEYS_PER_SECOND,
    trustedProxies: env.TRUSTED_PROXIES,
    corsOrigins: env.CORS_ORIGINS,
    readyPort: env.READY_PORT,
    drainLeadMs: env.DRAIN_LEAD_SECONDS * MS_PER_SECOND,
    drainMs: env.DRAIN_SECONDS * MS_PER_SECOND,
  };
}

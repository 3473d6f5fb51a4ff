/** The only file of this service that reads the environment. */
import { readSettingsFile } from "@gateway/shared/reload/files";
import * as env from "@gateway/shared/process/env";
import { BUDGET_VARIABLES } from "@gateway/shared/keys/budget_variables";
import { FAILED_REQUESTS, KEY_LIMITS } from "@gateway/shared/keys/limits";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { REQUEST_LIMITS, SSE_LIMITS } from "@gateway/shared/limits";
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import { Reading } from "@gateway/shared/reload/reading";
import * as catalogVariables from "@gateway/shared/models/catalog_variables";
import type { Network } from "@gateway/shared/process/client_address";
import type { LogLevel } from "@gateway/shared/process/log";
import * as serviceVariables from "@gateway/shared/process/service_variables";
import type { RedisAddress } from "@gateway/shared/redis/connection";
import type { KeepConfig } from "./kept/parts.ts";

const DEFAULT_PORT = 8080;
const MS_PER_SECOND = 1_000;
const DAY_SECONDS = 86_400;
const KIB = 1_024;
const GIB = KIB ** 3;

/** Whether, where and how much of answers is kept. */
const KEEP_VARIABLES = {
  KEEP: env.choice(["on", "off"]).default("on").describe(
    "Whether answers are kept for requests that ask for it by Idempotency-Key or X-Gateway-Keep, which needs JetStream in NATS; off = these headers are ignored",
  ),
  KEEP_STORAGE: env.choice(["file", "memory"]).default("file").describe(
    "Where NATS keeps them, encrypted; it cannot be changed once the stream exists",
  ),
  KEEP_BYTES: env.integer("bytes", { min: KIB ** 2, max: 1_024 * GIB })
    .default(KEPT_LIMITS.bytesMax).describe(
      "How many bytes all kept answers may have in NATS, on each of its servers; beyond that further ones fail with 503",
    ),
  KEEP_ACCOUNT_BYTES: env.integer("bytes", { min: KIB ** 2, max: GIB })
    .default(KEPT_LIMITS.accountBytesMax).describe(
      "How many bytes the kept answers of one account may have; beyond that 429",
    ),
};

/**
 * Every variable of an edge: how its text is read, its default, and what it means. The
 * reference of the configuration is generated from these.
 */
export const EDGE_VARIABLES = {
  ...serviceVariables.listenVariables(DEFAULT_PORT),
  ...serviceVariables.COMMON_VARIABLES,
  ...serviceVariables.REQUEST_LOG_VARIABLES,
  ...serviceVariables.NATS_VARIABLES,
  ...serviceVariables.REDIS_VARIABLES,
  ...catalogVariables.CATALOG_VARIABLES,
  ...BUDGET_VARIABLES,
  BODY_BYTES_MAX: env.integer("bytes", { min: KIB, max: GIB / 4 })
    .default(REQUEST_LIMITS.bodyBytesMax)
    .describe("Largest request body; a larger one gets 413"),
  BODIES_BYTES_MAX: env.integer("bytes", { min: KIB, max: 64 * GIB })
    .default(REQUEST_LIMITS.bodiesBytesMax).describe(
      "Request bodies that this edge holds at a time, from their first byte until no worker can need them again; for a container of 1 GiB. Beyond that a request waits for two seconds, then gets 503. Each key may hold a third, or two thirds while no other holds or wants any; beyond that it gets 429",
    ),
  REQUEST_TIMEOUT_SECONDS: env.integer("seconds", { min: 1, max: DAY_SECONDS })
    .default(600)
    .describe("A request is ended after this long, in any state"),
  STREAM_HEAD_SECONDS: env.integer("seconds", { min: 0, max: DAY_SECONDS })
    .default(SSE_LIMITS.headMs / MS_PER_SECOND).describe(
      "A stream without a first token is opened with keep-alive comments after this long, so that no proxy cuts it; 0 = never. A later failure is an event of the stream instead of an HTTP error",
    ),
  UNKNOWN_KEYS_PER_SECOND: env.integer("keys", { min: 1, max: 1_000_000 })
    .default(KEY_LIMITS.unknownPerSecond).describe(
      "Unknown keys that an edge looks up for one client address, per second; beyond that 429",
    ),
  REQUEST_LOG_DAYS: env.integer("days", { min: 1, max: 90 })
    .default(FAILED_REQUESTS.days).describe(
      "How long the rows of refused, failed and slow requests are kept",
    ),
  REQUEST_LOG_ROWS: env.integer("rows", { min: 100, max: 1_000_000 })
    .default(FAILED_REQUESTS.rows).describe(
      "Rows of them that are kept of an account, about 210 bytes of Redis each; the oldest are dropped",
    ),
  SLOW_REQUEST_SECONDS: env.integer("seconds", { min: 0, max: DAY_SECONDS })
    .default(FAILED_REQUESTS.slowMs / MS_PER_SECOND).describe(
      "A request whose first byte takes longer is in the request log as a slow one; 0 = none is",
    ),
  USAGE_COST: env.choice(["true", "false"]).default("false").describe(
    "Whether the usage in answers of chat completions says what the request costs: usage.cost, in CURRENCY",
  ),
  ...KEEP_VARIABLES,
  ...serviceVariables.PROXY_VARIABLES,
  READY_PORT: env.port().optional().describe(
    "A port that is open only while this edge accepts requests: a proxy that connects to it before forwarding each request loses none",
  ),
  DRAIN_LEAD_SECONDS: env.integer("seconds", { min: 0, max: 300 }).default(0)
    .describe(
      "On SIGTERM the edge announces that it stops (readiness, READY_PORT, Connection: close) and keeps accepting requests for this long, until every proxy has noticed",
    ),
  CORS_ORIGINS: env.list(
    "origins (https://app.example.org, app://obsidian.md) or *",
    env.matching(/^(?:[a-z][a-z0-9+.-]*:\/\/[^/?#@*]+|\*)$/),
  ).default([])
    .describe(
      "Origins of web pages and apps that may call this service, such as https://app.example.org, app://obsidian.md, tauri://localhost or chrome-extension://…; * lets every page call it",
    ),
};

/** What an edge is started with: {@link EDGE_VARIABLES} say what each value means. */
export interface EdgeConfig {
  logLevel: LogLevel;
  /** Share of the requests that end well whose lines are written, 0 to 1. */
  logSample: number;
  /** Where the public API is served. */
  hostname: string;
  port: number;
  /** Where health, readiness and metrics are served. */
  ops: { hostname: string; port: number };
  bus: serviceVariables.BusAccess;
  redis: RedisAddress;
  /** The list of models, which may change. */
  list: Reading<ModelCatalog>;
  bodyBytesMax: number;
  bodiesBytesMax: number;
  requestTimeoutMs: number;
  /** 0: a stream is never opened before its first line. */
  streamHeadMs: number;
  unknownKeysPerSecond: number;
  requestLogMs: number;
  requestLogRows: number;
  /** `Infinity`: no request counts as slow. */
  slowMs: number;
  showsCost: boolean;
  /** The time zone of the days and months of budgets. */
  budgetZone: string;
  trustedProxies: readonly Network[];
  corsOrigins: readonly string[];
  readyPort: number | undefined;
  drainLeadMs: number;
  drainMs: number;
  /** Null: answers are not kept. */
  keep: KeepConfig | null;
}

/**
 * Reads the configuration from the environment and the files that it names. Throws an
 * error with a sentence for each variable that is missing or wrong.
 */
export function readConfig(): EdgeConfig {
  const variables = Deno.env.toObject();
  const readFile = readSettingsFile;
  const values = env.parseEnv(EDGE_VARIABLES, variables, readFile);
  return {
    logLevel: values.LOG_LEVEL,
    logSample: values.LOG_SAMPLE,
    hostname: values.HOST,
    port: values.PORT,
    ops: { hostname: values.OPS_HOST, port: values.OPS_PORT },
    bus: serviceVariables.busAccess(values),
    redis: { ...serviceVariables.redisAccess(values), clientName: "edge-auth" },
    list: new Reading(
      (read) => catalogVariables.readCatalog(variables, read),
      readFile,
    ),
    bodyBytesMax: values.BODY_BYTES_MAX,
    bodiesBytesMax: values.BODIES_BYTES_MAX,
    requestTimeoutMs: values.REQUEST_TIMEOUT_SECONDS * MS_PER_SECOND,
    streamHeadMs: values.STREAM_HEAD_SECONDS * MS_PER_SECOND,
    unknownKeysPerSecond: values.UNKNOWN_KEYS_PER_SECOND,
    requestLogMs: values.REQUEST_LOG_DAYS * DAY_SECONDS * MS_PER_SECOND,
    requestLogRows: values.REQUEST_LOG_ROWS,
    slowMs: values.SLOW_REQUEST_SECONDS * MS_PER_SECOND || Infinity,
    showsCost: values.USAGE_COST === "true",
    budgetZone: values.BUDGET_TIME_ZONE,
    trustedProxies: values.TRUSTED_PROXIES,
    corsOrigins: values.CORS_ORIGINS,
    readyPort: values.READY_PORT,
    drainLeadMs: values.DRAIN_LEAD_SECONDS * MS_PER_SECOND,
    drainMs: values.DRAIN_SECONDS * MS_PER_SECOND,
    keep: keepOf(values),
  };
}

function keepOf(
  values: env.ConfigOf<typeof EDGE_VARIABLES>,
): KeepConfig | null {
  if (values.KEEP === "off") return null;
  const seconds = values.REQUEST_TIMEOUT_SECONDS + KEPT_LIMITS.secondsMax;
  return {
    stream: {
      storage: values.KEEP_STORAGE,
      bytesMax: values.KEEP_BYTES,
      // A run, then the time of keeping; as much again for edges that clear up.
      ageMsMax: 2 * seconds * MS_PER_SECOND,
    },
    accountBytesMax: values.KEEP_ACCOUNT_BYTES,
  };
}

/** The app of an edge, of which a test gives the parts that matter to it. */
import assert from "node:assert/strict";
import { REQUEST_LIMITS, SSE_LIMITS } from "@gateway/shared/limits";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { Deadlines } from "@gateway/shared/process/deadlines";
import { type Log, silentLog } from "@gateway/shared/process/log";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { AppDependencies } from "./api/dependencies.ts";
import { createApp } from "./app.ts";
import { CountLimit } from "./forward/count_limit.ts";
import { BodyBudget } from "./http/body_budget.ts";
import { RefusedBodies } from "./http/read_body.ts";
import { RefusalLog } from "./http/refusal_log.ts";
import { startServer } from "./http/server.ts";
import { EdgeMetrics } from "./metrics.ts";
import { VideoJobs } from "./videos/jobs.ts";
import { VideoKeeper } from "./videos/keeper.ts";

/**
 * The models of the simulator. Edges read only their abilities, so no server is at that
 * address.
 */
export const CATALOG = catalogFromSimulator("http://127.0.0.1:9/v1");

const refuse = () =>
  Promise.reject(new RedisUnavailableError("offline", "there is none"));
/** The videos of an edge that has no Redis. */
const noVideos = new VideoKeeper({
  jobs: new VideoJobs({ redis: { command: refuse, evalScript: refuse } }),
  limiter: { endVideo: refuse, releaseVideo: refuse },
  dispatcher: { start: () => assert.fail("There is no video") },
  catalog: CATALOG,
  wallNow,
  log: silentLog,
  onMade: () => {},
});

/** The API, served until it is disposed of. */
export interface ServedApp extends AsyncDisposable {
  /** `http://<host>:<port>` */
  readonly origin: string;
}

/**
 * Serves what `overrides` does not change: without videos, and with the bounds that are
 * usual.
 */
export async function startApp(
  overrides:
    & Pick<AppDependencies, "dispatcher" | "keys" | "admission">
    & Partial<AppDependencies>,
): Promise<ServedApp> {
  const { now = monotonicNow, log = silentLog }: {
    now?: () => number;
    log?: Log;
  } = overrides;
  const deadlines = new Deadlines(now);
  const handler = createApp({
    catalog: CATALOG,
    videos: noVideos,
    now,
    wallNow,
    countLimit: new CountLimit(now),
    log,
    deadlines,
    bodyBytesMax: REQUEST_LIMITS.bodyBytesMax,
    streamHeadMs: SSE_LIMITS.headMs,
    bodyBudget: new BodyBudget(REQUEST_LIMITS),
    // Debts are paid at once: on a busy machine any body may take long.
    refusedBodies: new RefusedBodies(() => 1_000 * now()),
    metrics: new EdgeMetrics(new MetricRegistry()),
    refusals: new RefusalLog(log),
    clientAddress: createClientAddress([]),
    corsOrigins: [],
    isDraining: () => false,
    isRun: () => true,
    failedRequests: { add: () => {} },
    slowMs: Infinity,
    ...overrides,
  });
  const server = await startServer({
    hostname: "127.0.0.1",
    port: 0,
    handler,
    onError: (error) => log.error("request_fault", { error }),
  });
  return {
    origin: `http://127.0.0.1:${server.port}`,
    async [Symbol.asyncDispose]() {
      await server.stop({ graceMs: 2_000, abortMs: 100 });
      deadlines.close();
    },
  };
}

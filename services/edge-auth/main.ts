/** Wires the public API: Redis, bus, dispatcher, HTTP. */
import { setTimeout as delay } from "node:timers/promises";
import { REFUSAL_LOG } from "@gateway/shared/limits";
import { createClientAddress } from "@gateway/shared/process/client_address";
import { type BusLink, connectBus } from "@gateway/shared/bus/link_nats";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { newInstanceId } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import type { Log } from "@gateway/shared/process/log";
import { serve } from "@gateway/shared/process/lifecycle/serve";
import { createRedisLink, type RedisLink } from "@gateway/shared/redis/link";
import {
  type RunningService,
  runService,
  type ServiceTools,
} from "@gateway/shared/process/lifecycle/service";
import { INBOX_PREFIXES } from "@gateway/shared/process/service_variables";
import { createApp } from "./app.ts";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import { familyOf } from "@gateway/shared/models/kinds";
import { ListedModels } from "@gateway/shared/models/listed_models";
import { startCatalog } from "@gateway/shared/reload/list";
import { CONTROL_WAIT_MS } from "./dispatch/edge_bus.ts";
import { tellRunning } from "./dispatch/running.ts";
import { type EdgeConfig, readConfig } from "./config.ts";
import { CountLimit } from "./forward/count_limit.ts";
import { Deadlines } from "@gateway/shared/process/deadlines";
import { BodyBudget } from "./http/body_budget.ts";
import { RefusedBodies } from "./http/read_body.ts";
import { ANY_ORIGIN } from "./http/responses.ts";
import { RefusalLog } from "./http/refusal_log.ts";
import { startServer } from "./http/server.ts";
import { EdgeMetrics, observeEdge } from "./metrics.ts";
import { followOverrides } from "./overrides.ts";
import { KeyLookup } from "./keys/authenticate.ts";
import { AnswerLengths } from "./limits/budgets/answer_lengths.ts";
import { HoldSteps } from "./limits/hold_steps.ts";
import { LimitedAdmission } from "./limits/admission.ts";
import { FailedRequests } from "./limits/failed_requests.ts";
import { Limiter, LIMITER_PROBE } from "./limits/limiter.ts";
import { LostRequests } from "./limits/lost_requests.ts";
import { EDGE_SCRIPTS } from "./limits/scripts.ts";
import { modelNotFound } from "./requests/body/parse_request.ts";
import { VIDEO_SCRIPTS, VideoJobs } from "./videos/jobs.ts";
import { VideoKeeper } from "./videos/keeper.ts";

/** After the grace period, streams have this long to end with an error event. */
const ABORT_MS = 1_000;
/** Workers then have this long to report the cost of cancelled requests. */
const RUNS_END_MS = 1_500;
/** Redis may be started after the services. */
const START_MS = 30_000;
/** Remaining settlements must reach Redis within this time. */
const SETTLE_MS = 3_000;

await runService({ name: "edge-auth", readConfig, start });

/** What an edge is connected to. */
interface Connections {
  readonly edgeId: string;
  readonly redis: RedisLink;
  readonly bus: BusLink;
}

/** The parts of an edge that requests go through. */
interface EdgeParts {
  readonly catalog: ModelCatalog;
  readonly metrics: EdgeMetrics;
  readonly dispatcher: Dispatcher;
  readonly keys: KeyLookup;
  readonly limiter: Limiter;
  readonly admission: LimitedAdmission;
  readonly refusals: RefusalLog;
  readonly countLimit: CountLimit;
  readonly failedRequests: FailedRequests;
  readonly videos: VideoKeeper;
  readonly lostRequests: LostRequests;
  readonly answerLengths: AnswerLengths;
}

/** What the parts take of the configuration, and the models. */
interface PartsConfig extends EdgeConfig {
  readonly catalog: ModelCatalog;
}

async function start(
  config: EdgeConfig,
  tools: ServiceTools,
): Promise<RunningService> {
  const { log, registry } = tools;
  warnOfOrigins(config, log);
  const connections = await connect(config, log);
  const { edgeId, bus, redis } = connections;
  const { catalog, reloading } = startCatalog(config.list, tools);
  const parts = createParts({ ...config, catalog }, connections, tools);
  const { dispatcher, limiter } = parts;
  const stopBackground = await startBackground(parts, { ...connections, log });
  const deadlines = new Deadlines(monotonicNow);
  let isDraining = false;
  // Redis and NATS are available, so proxies may send requests.
  const readyServer = openReadyPort(config);
  const server = await startServer({
    ...config,
    ...processTools(log),
    handler: createApp({
      ...config,
      ...processTools(log),
      ...parts,
      deadlines,
      bodyBudget: new BodyBudget(config),
      refusedBodies: new RefusedBodies(monotonicNow),
      wallNow,
      clientAddress: createClientAddress(config.trustedProxies),
      isDraining: () => isDraining,
      isRun: ({ id, kind }) =>
        dispatcher.workers.mayRun({ model: id, family: familyOf(kind) }),
    }),
    onError: (error) => log.error("request_fault", { error }),
  });
  server.stopping.addEventListener("abort", () =>
    dispatcher.cancelAll(
      "shutdown",
      new ApiError("server_shutdown", "The server is shutting down."),
    ));
  observeEdge(registry, { dispatcher, leases: limiter.leases });
  return {
    bus,
    redis: [redis],
    // It answers 503 then, with what clients need to try again.
    answersWithout: true,
    ready: { edgeId, port: server.port, readyPort: readyServer?.port },
    stop: async () => {
      // Requests of proxies that have not noticed yet still arrive and are served.
      isDraining = true;
      reloading.stop();
      await readyServer?.stop({ graceMs: 0, abortMs: 0 });
      await delay(config.drainLeadMs);
      await server.stop({ graceMs: config.drainMs, abortMs: ABORT_MS });
      await stopBackground();
      deadlines.close();
      await bus.drain();
      await redis.close();
    },
  };
}

function warnOfOrigins({ corsOrigins }: EdgeConfig, log: Log): void {
  if (!corsOrigins.includes(ANY_ORIGIN)) return;
  log.warn("any_origin_allowed", {
    message: "CORS_ORIGINS is *: every web page may call this service",
  });
}

/** What the parts use of the process. */
function processTools(log: Log) {
  return { now: monotonicNow, random: Math.random, log };
}

/** Connects to Redis and NATS; waits for both. */
async function connect(config: EdgeConfig, log: Log): Promise<Connections> {
  const edgeId = newInstanceId();
  const redis = createRedisLink({
    ...processTools(log),
    address: config.redis,
    scripts: [...EDGE_SCRIPTS, ...VIDEO_SCRIPTS],
    probe: LIMITER_PROBE,
  });
  const bus = await connectBus({
    ...processTools(log),
    ...config.bus,
    inboxPrefix: INBOX_PREFIXES.edge,
    name: `edge-auth ${edgeId}`,
  });
  await redis.ready(START_MS);
  return { edgeId, redis, bus };
}

/** Makes the parts; none of them does anything yet. */
function createParts(
  config: PartsConfig,
  { edgeId, redis, bus }: Connections,
  { log, registry }: ServiceTools,
): EdgeParts {
  const { catalog, requestTimeoutMs, unknownKeysPerSecond } = config;
  const common = processTools(log);
  const metrics = new EdgeMetrics(registry);
  const dispatcher = new Dispatcher({
    ...common,
    bus,
    edgeId,
    scheduleSoon: (flush) => void setTimeout(flush, CONTROL_WAIT_MS),
    requestTimeoutMs,
    refusalOf: (id) => catalog.isDisabled(id) ? modelNotFound(id) : null,
    listed: new ListedModels({ ...common, catalog }),
  });
  const keys = new KeyLookup({
    ...common,
    redis,
    unknownPerSecond: unknownKeysPerSecond,
  });
  const limits = createLimits(config, {
    dispatcher,
    keys,
    metrics,
    redis,
    log,
  });
  const { limiter } = limits;
  const failedRequests = new FailedRequests({
    ...config,
    redis,
    log,
    now: wallNow,
    catalog,
    onLost: (count) => metrics.failedRequestsLost(count),
  });
  const videos = new VideoKeeper({
    limiter,
    dispatcher,
    log,
    wallNow,
    catalog,
    jobs: new VideoJobs({ redis }),
    onMade: (subject, cost) => metrics.charged(subject, cost),
  });
  return {
    catalog,
    metrics,
    dispatcher,
    keys,
    ...limits,
    refusals: new RefusalLog(log),
    countLimit: new CountLimit(monotonicNow),
    failedRequests,
    videos,
  };
}

/** Makes what admits requests, and what charges them. */
function createLimits(
  { catalog, showsCost, budgetZone }: PartsConfig,
  { dispatcher, keys, metrics, redis, log }:
    & Pick<EdgeParts, "dispatcher" | "keys" | "metrics">
    & { redis: RedisLink; log: Log },
): Pick<
  EdgeParts,
  | "limiter"
  | "admission"
  | "lostRequests"
  | "answerLengths"
> {
  const common = processTools(log);
  const limiter: Limiter = new Limiter({
    ...common,
    redis,
    budgetZone,
    onStopped: (keyId) => dispatcher.stopKey(keyId),
    onLease: (principal) => lostRequests.note(principal),
  });
  const lostRequests = new LostRequests({
    ...common,
    redis,
    expectedMs: () => limiter.expectedMs,
    onCharged: (terms) => metrics.lostCharged(terms),
  });
  const answerLengths = new AnswerLengths({ redis, now: wallNow, log });
  const admission = new LimitedAdmission({
    ...common,
    answerLengths,
    holdSteps: new HoldSteps({
      ...common,
      redis,
      onStep: (result) => metrics.stepped(result),
    }),
    limiter,
    catalog,
    showsCost,
    onUnknown: (principal) => keys.forget(principal),
    onDecision: (decision, durationMs) => metrics.decided(decision, durationMs),
    onCharged: (subject, cost) => metrics.charged(subject, cost),
  });
  return { limiter, admission, lostRequests, answerLengths };
}

/**
 * Starts what an edge does without being asked: beats, renewals, look-outs, summaries.
 * The returned function ends it, after the runs and with what they have left to write.
 */
async function startBackground(
  { dispatcher, keys, limiter, refusals, ...parts }: EdgeParts,
  { bus, edgeId, redis, log }: Connections & { log: Log },
): Promise<() => Promise<void>> {
  await followOverrides({ bus, redis, catalog: parts.catalog, log });
  const { failedRequests, videos, lostRequests, answerLengths } = parts;
  bus.onEvent((event) => {
    // A notice may have been missed.
    if (event === "reconnected") limiter.leases.renewSoon();
  });
  const summing = setInterval(() => refusals.writeSums(), REFUSAL_LOG.sumMs);
  const stopWatching = keys.watchStore();
  failedRequests.start();
  tellRunning({ bus, edgeId, dispatcher, log });
  const stopBeating = await dispatcher.join(bus);
  const stopSweeping = videos.start();
  lostRequests.start();
  answerLengths.start();
  return async () => {
    stopSweeping();
    await Promise.all([lostRequests.stop(), answerLengths.stop()]);
    await dispatcher.idleWithin(RUNS_END_MS);
    clearInterval(summing);
    refusals.writeSums();
    stopWatching();
    await Promise.all([limiter.leases.stop(SETTLE_MS), failedRequests.stop()]);
    stopBeating();
  };
}

/**
 * A port rather than a path, because proxies try another edge on their own only when
 * they cannot connect.
 */
function openReadyPort({ hostname, readyPort: port }: EdgeConfig) {
  if (port === undefined) return undefined;
  const answer = () => new Response(null, { status: 204 });
  return serve({ hostname, port, handler: answer, onError: answer });
}

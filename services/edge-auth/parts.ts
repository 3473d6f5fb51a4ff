/**
 * The parts of an edge that requests go through, how they depend on each other, and
 * what they do without being asked.
 */
import { REFUSAL_LOG } from "@gateway/shared/limits";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { ServiceTools } from "@gateway/shared/process/lifecycle/service";
import { Dispatcher } from "./dispatch/dispatcher.ts";
import type { ModelCatalog } from "@gateway/shared/models/catalog";
import { ListedModels } from "@gateway/shared/models/listed_models";
import { CONTROL_WAIT_MS } from "./dispatch/edge_bus.ts";
import { tellRunning } from "./dispatch/running.ts";
import type { EdgeConfig } from "./config.ts";
import { CountLimit } from "./forward/count_limit.ts";
import { RefusalLog } from "./http/refusal_log.ts";
import { EdgeMetrics } from "./metrics.ts";
import { followOverrides } from "./overrides.ts";
import { KeyLookup } from "./keys/authenticate.ts";
import { createKeeping, type Keeping, startKeeping } from "./kept/parts.ts";
import { AnswerLengths } from "./limits/budgets/answer_lengths.ts";
import { HoldSteps } from "./limits/hold_steps.ts";
import { LimitedAdmission } from "./limits/admission.ts";
import { FailedRequests } from "./limits/failed_requests.ts";
import { Limiter } from "./limits/limiter.ts";
import { LostRequests } from "./limits/lost_requests.ts";
import { modelNotFound } from "./requests/body/parse_request.ts";
import { VideoJobs } from "./videos/jobs.ts";
import { VideoKeeper } from "./videos/keeper.ts";

/** After the last stream, workers have this long to report what cancelled ones cost. */
const RUNS_END_MS = 1_500;
/** Remaining settlements must reach Redis within this time. */
const SETTLE_MS = 3_000;

/** What an edge is connected to. */
export interface Connections {
  readonly edgeId: string;
  readonly redis: RedisLink;
  readonly bus: BusLink;
}

/** The parts of an edge that requests go through. */
export interface EdgeParts {
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
  /** Null, with its parts: answers are not kept. */
  readonly keeping: Keeping | null;
  readonly keeper: Keeping["keeper"] | null;
  readonly answers: Keeping["answers"] | null;
}

/** What the parts take of the configuration, and the models. */
export interface PartsConfig extends EdgeConfig {
  readonly catalog: ModelCatalog;
}

/** What the parts use of the process. */
export function processTools(log: Log) {
  return { now: monotonicNow, random: Math.random, log };
}

/** Makes the parts; none of them does anything yet. */
export function createParts(
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
    queueOf: (id) => catalog.get(id)?.queue,
    listed: new ListedModels({ ...common, catalog }),
  });
  const keys = new KeyLookup({
    ...common,
    redis,
    unknownPerSecond: unknownKeysPerSecond,
  });
  const shared = { dispatcher, metrics, redis, log };
  const limits = createLimits(config, { ...shared, keys });
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
    ...createKept(config, { ...shared, ...limits, failedRequests, bus }),
    refusals: new RefusalLog(log),
    countLimit: new CountLimit(monotonicNow),
    failedRequests,
    videos,
  };
}

/** Makes what keeps answers; null: they are not kept. */
function createKept(
  { keep, ...config }: PartsConfig,
  { metrics, log, ...parts }:
    & Pick<
      EdgeParts,
      "limiter" | "admission" | "dispatcher" | "metrics" | "failedRequests"
    >
    & { bus: BusLink; redis: RedisLink; log: Log },
): Pick<EdgeParts, "keeping" | "keeper" | "answers"> {
  if (keep === null) return { keeping: null, keeper: null, answers: null };
  const keeping = createKeeping({
    ...config,
    ...parts,
    ...processTools(log),
    keep,
    metrics,
    wallNow,
    onEnded: (state) => metrics.keptTakenOver(state),
  });
  const { keeper, answers } = keeping;
  return { keeping, keeper, answers };
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
    onCharged: ({ suffix }, nanos) => metrics.lostCharged(suffix, nanos),
  });
  const answerLengths = new AnswerLengths({ redis, now: wallNow, log });
  const admission = new LimitedAdmission({
    ...common,
    answerLengths,
    holdSteps: new HoldSteps({
      ...common,
      redis,
      leases: limiter.leases,
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
export async function startBackground(
  { dispatcher, keys, limiter, refusals, ...parts }: EdgeParts,
  { bus, edgeId, redis, log }: Connections & { log: Log },
): Promise<() => Promise<void>> {
  await followOverrides({ bus, redis, catalog: parts.catalog, log });
  const { failedRequests, videos, lostRequests, answerLengths } = parts;
  const { keeping } = parts;
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
  const stopKeeping = keeping === null
    ? undefined
    : await startKeeping(keeping, { bus, dispatcher });
  return async () => {
    stopSweeping();
    await Promise.all([lostRequests.stop(), answerLengths.stop()]);
    await dispatcher.idleWithin(RUNS_END_MS);
    await stopKeeping?.();
    clearInterval(summing);
    refusals.writeSums();
    stopWatching();
    await Promise.all([limiter.leases.stop(SETTLE_MS), failedRequests.stop()]);
    stopBeating();
  };
}

/** An edge in the process of a test with the real admission, by a Redis. */
import type { AppDependencies } from "../../../services/edge-auth/api/dependencies.ts";
import { CATALOG } from "../../../services/edge-auth/app_fixture.ts";
import { KeyLookup } from "../../../services/edge-auth/keys/authenticate.ts";
import { HoldSteps } from "../../../services/edge-auth/limits/hold_steps.ts";
import { LimitedAdmission } from "../../../services/edge-auth/limits/admission.ts";
import {
  Limiter,
  LIMITER_PROBE,
} from "../../../services/edge-auth/limits/limiter.ts";
import { EDGE_SCRIPTS } from "../../../services/edge-auth/limits/scripts.ts";
import {
  createKeeping,
  type KeepConfig,
  type Keeping,
} from "../../../services/edge-auth/kept/parts.ts";
import { KEPT_SCRIPTS } from "../../../services/edge-auth/kept/records.ts";
import { EdgeMetrics } from "../../../services/edge-auth/metrics.ts";
import {
  VIDEO_SCRIPTS,
  VideoJobs,
} from "../../../services/edge-auth/videos/jobs.ts";
import { VideoKeeper } from "../../../services/edge-auth/videos/keeper.ts";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { SSE_LIMITS } from "@gateway/shared/limits";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import {
  monotonicNow,
  type WallNow,
  wallNow as systemNow,
} from "@gateway/shared/process/clock";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { CallOptions } from "@gateway/shared/redis/calls";
import { createRecordingLog, type RecordingLog } from "../recording_log.ts";
import { changedLink, testRedisLink } from "../servers/redis_link.ts";
import { startTcpProxy, type TcpProxy } from "../servers/tcp_proxy.ts";
import {
  type EdgeParts,
  type InProcessEdge,
  REQUEST_MS,
  startEdge,
} from "./in_process_edge.ts";

/** What differs between edges with limits. */
export interface LimitedEdgeOptions {
  /** What of the app differs. */
  door?: Partial<AppDependencies>;
  /** Default {@link KEY_LIMITS}. */
  unknownPerSecond?: number;
  /** Whether answers say what they cost; not if left out. */
  showsCost?: boolean;
  /** Where what it decides and charges is counted. */
  metrics?: EdgeMetrics;
  /**
   * Where the edges find Redis, which was started on `port`: asked for every
   * connection.
   */
  redisAt?: (port: number) => number;
  /**
   * How long edges wait for Redis at least; if left out, as long as a busy machine
   * needs.
   */
  redisMsMin?: number;
  /** Whether it keeps answers; not if left out. */
  keeps?: Partial<KeepConfig> | undefined;
  /** The longest that a run may take; `REQUEST_MS` if left out. */
  requestTimeoutMs?: number;
  /** What its own clock shows; the time of the system if left out. */
  wallNow?: WallNow;
  /** How many times longer it waits for workers; {@link SLOWER} if left out. */
  slower?: number;
}

/** An edge and its admission. */
export interface LimitedEdge extends InProcessEdge {
  readonly keys: KeyLookup;
  readonly limiter: Limiter;
  readonly redis: RedisLink;
  readonly log: RecordingLog;
  /** Between this edge and Redis. */
  readonly proxy: TcpProxy;
  /** Requests that Redis has admitted. */
  readonly admissions: number;
}

const PATIENT_MS = 30_000;
const STOP_MS = 2_000;
/** A worker has 250 ms to answer an offer: no test with limits is about that. */
export const SLOWER = 8;

/** Starts an edge with a connection of its own to Redis; it ends with `owner`. */
export async function startLimitedEdge(
  owner: AsyncDisposableStack,
  { servers, port, ...options }: LimitedEdgeOptions & {
    servers: string[];
    port: number;
  },
): Promise<LimitedEdge> {
  const { redisAt = () => port } = options;
  const log = createRecordingLog();
  const proxy = owner.use(startTcpProxy(() => redisAt(port)));
  const link = edgeLinkTo(`redis://${proxy.server}`, log);
  owner.defer(() => link.close());
  await link.ready(PATIENT_MS);
  const redis = patient(link, options.redisMsMin ?? PATIENT_MS);
  const common = { redis, now: monotonicNow, random: Math.random, log };
  let admissions = 0;
  const { unknownPerSecond = KEY_LIMITS.unknownPerSecond, metrics } = options;
  const keys = new KeyLookup({ ...common, unknownPerSecond });
  const limiter = new Limiter(common);
  const admission = new LimitedAdmission({
    ...common,
    holdSteps: new HoldSteps({ ...common, leases: limiter.leases }),
    limiter,
    catalog: options.door?.catalog ?? CATALOG,
    showsCost: options.showsCost ?? false,
    onUnknown: (principal) => keys.forget(principal),
    onCharged: (subject, cost) => metrics?.charged(subject, cost),
    onDecision: (decision) => {
      if (typeof decision !== "string" && decision.isAdmitted) admissions += 1;
    },
  });
  const stopWatching = keys.watchStore();
  owner.defer(async () => {
    stopWatching();
    await limiter.leases.stop(STOP_MS);
  });
  const videos = keeperOf(() => edge, { redis, limiter, log, ...options });
  const door = {
    keys,
    admission,
    videos,
    ...metrics && { metrics },
    ...options.door,
  };
  const { slower = SLOWER, requestTimeoutMs } = options;
  const bounds = { slower, requestTimeoutMs };
  const keeping = keepingOf({ ...common, limiter, admission }, options);
  const edge = await startEdge({ servers, door, log, ...bounds, ...keeping });
  return {
    ...owner.use(edge),
    keys,
    limiter,
    redis,
    log,
    proxy,
    get admissions() {
      return admissions;
    },
  };
}

const KEEP: KeepConfig = {
  stream: { storage: "memory", bytesMax: 64 * 1_024 ** 2, ageMsMax: 600_000 },
  accountBytesMax: KEPT_LIMITS.accountBytesMax,
};

/** What keeps the answers of an edge; nothing if it keeps none. */
function keepingOf(
  parts: Pick<LimitedEdge, "redis" | "limiter" | "log"> & {
    admission: LimitedAdmission;
  },
  {
    keeps,
    door,
    metrics,
    showsCost = false,
    wallNow = systemNow,
    requestTimeoutMs = REQUEST_MS,
  }: LimitedEdgeOptions,
): { keeping?: (edge: EdgeParts) => Keeping } {
  if (keeps === undefined) return {};
  const keeping = ({ link, dispatcher }: EdgeParts) =>
    createKeeping({
      ...parts,
      keep: { ...KEEP, ...keeps },
      bus: link,
      dispatcher,
      catalog: door?.catalog ?? CATALOG,
      metrics: metrics ?? new EdgeMetrics(new MetricRegistry()),
      failedRequests: { add: () => {} },
      now: monotonicNow,
      wallNow,
      slowMs: Infinity,
      requestTimeoutMs,
      streamHeadMs: SSE_LIMITS.headMs,
      showsCost,
    });
  return { keeping };
}

function edgeLinkTo(url: string, log: RecordingLog): RedisLink {
  const scripts = [...EDGE_SCRIPTS, ...VIDEO_SCRIPTS, ...KEPT_SCRIPTS];
  return testRedisLink({ url }, { log, scripts, probe: LIMITER_PROBE });
}

/** What a keeper of videos has of its edge. */
type KeeperParts =
  & Pick<LimitedEdge, "redis" | "limiter" | "log">
  & Pick<LimitedEdgeOptions, "metrics" | "door">;

/** Follows the videos of an edge, and asks for their state each time. */
function keeperOf(
  edge: () => InProcessEdge,
  parts: KeeperParts,
): VideoKeeper {
  const { redis, limiter, log, metrics, door } = parts;
  return new VideoKeeper({
    jobs: new VideoJobs({ redis }),
    limiter,
    dispatcher: { start: (...run) => edge().dispatcher.start(...run) },
    catalog: door?.catalog ?? CATALOG,
    wallNow: systemNow,
    log,
    onMade: (subject, cost) => metrics?.charged(subject, cost),
    limits: { freshMs: 0 },
  });
}

/** Gives each call this much time at least. */
function patient(link: RedisLink, ms: number): RedisLink {
  const optionsOf = (options: CallOptions = {}) =>
    ms === 0
      ? options
      : { ...options, deadlineMs: Math.max(ms, options.deadlineMs ?? 0) };
  return changedLink(link, {
    command: (args, options) => link.command(args, optionsOf(options)),
    evalScript: (script, input, options) =>
      link.evalScript(script, input, optionsOf(options)),
  });
}

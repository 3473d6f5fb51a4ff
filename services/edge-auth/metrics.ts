/** The metrics of the edge. A stream is counted once, at its end. */
import { WORKER_FAMILIES } from "@gateway/shared/bus/subjects";
import { CANCEL_REASONS } from "@gateway/shared/bus/stream/control";
import {
  ANSWER_SECONDS,
  counter,
  gauge,
  histogram,
  type MetricRegistry,
} from "@gateway/shared/process/metrics";
import type { ChargeSubject, Decision } from "./limits/admission.ts";
import type { StepResult } from "./limits/hold_steps.ts";
import type { Cost } from "./limits/cost.ts";
import { sharesOf } from "./limits/rate.ts";
import { LIMIT_NAMES } from "./limits/refusal.ts";
import {
  parseUsageSuffix,
  unitLabel,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import { NANOS_PER_UNIT } from "@gateway/shared/money/amount";
import { UNIT_OF_KIND } from "@gateway/shared/models/kinds";
import type { RunOutcome } from "./dispatch/outcome.ts";
import type { RunFacts } from "./requests/run_record.ts";
import type { Dispatcher } from "./dispatch/dispatcher.ts";

const INTERNAL_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2];
const TOKEN_GAP_SECONDS = [0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 1];

/** Every metric of the edge except those that all services have. */
export const EDGE_METRICS = {
  requests: counter("gateway_requests_total", {
    help:
      "HTTP requests by status. `route`: `chat`, `messages`, `count_tokens`, `responses`, `response`, `input_tokens`, `compact`, `completions`, `embeddings`, `rerank`, `speech`, `image`, `image_edit`, `transcription`, `translation`, `video`, `video_job`, `video_content`, `video_remix`, `answer`, `models`, `model`, `reference`, `other`. 499: the client disconnected first.",
    labels: ["route", "status"],
  }),
  requestSeconds: histogram("gateway_request_duration_seconds", {
    help: "Time from the arrival of a request to the end of its answer.",
    labels: ["route"],
    buckets: ANSWER_SECONDS,
  }),
  runs: counter("gateway_chat_runs_total", {
    help:
      "Admitted chat requests by outcome: `complete`, `failed`, `cancelled`. `code` is the error code, empty without an error.",
    labels: ["model", "outcome", "code"],
  }),
  mediaRuns: counter("gateway_media_runs_total", {
    help:
      "Admitted media requests (images, speech, transcriptions, videos) by outcome, as `gateway_chat_runs_total`.",
    labels: ["model", "outcome", "code"],
  }),
  mediaFirstByte: histogram("gateway_media_first_byte_seconds", {
    help:
      "Time from the arrival of a media request to the first bytes of its answer.",
    labels: ["model"],
    buckets: ANSWER_SECONDS,
  }),
  mediaUnits: counter("gateway_media_units_total", {
    help:
      "What requests without tokens were charged at their end. `unit`: `images`, `characters` (spoken), `audio_seconds` (transcribed), `video_seconds`.",
    labels: ["model", "unit"],
  }),
  firstToken: histogram("gateway_time_to_first_token_seconds", {
    help:
      "Time from the arrival of a streamed chat request to the first bytes of its answer.",
    labels: ["model"],
    buckets: ANSWER_SECONDS,
  }),
  tokenGap: histogram("gateway_time_between_tokens_seconds", {
    help:
      "Time between two tokens, as the mean of each complete streamed answer.",
    labels: ["model"],
    buckets: TOKEN_GAP_SECONDS,
  }),
  tokens: counter("gateway_tokens_total", {
    help:
      "Tokens that requests were charged at their end: `prompt`, `completion`. `endpoint`: `chat`, `messages`, `responses`, `completions`, `embeddings`, `rerank`.",
    labels: ["model", "endpoint", "kind"],
  }),
  cacheTokens: counter("gateway_cache_tokens_total", {
    help:
      "Prompt tokens that model servers say they have `read` from their cache, or `written` to it.",
    labels: ["model", "endpoint", "kind"],
  }),
  cost: counter("gateway_cost_total", {
    help:
      "What requests were charged at their end, in CURRENCY, before each sum is rounded. `kind`: the price, `input`, `cached_input`, `cache_write`, `output`, `request`, `image`, `second`, `million_characters`; `lost` for requests whose edge was lost, with what they held of budgets or had reserved.",
    labels: ["model", "kind"],
  }),
  holdSteps: counter("gateway_hold_steps_total", {
    help:
      "Times that a running answer which had passed what it held of budgets reserved more: `raised`, or `short` where less was left. Then it goes on, and its budget may be passed.",
    labels: ["result"],
    zeros: [["raised"], ["short"]],
  }),
  unpriced: counter("gateway_unpriced_total", {
    help:
      "Requests to models that have no price, although others have one: they cost nothing.",
    labels: ["model"],
  }),
  dispatchWait: histogram("gateway_dispatch_wait_seconds", {
    help: "Time from admission until a worker accepted the request.",
    buckets: INTERNAL_SECONDS,
  }),
  rejects: counter("gateway_rejects_total", {
    help:
      "Requests that a worker was offered and rejected: `full`, `saturated` (the model servers are at limits of theirs; offered again, it counts again), `draining`, `stale` and others.",
    labels: ["reason"],
    zeros: [["full"], ["saturated"], ["draining"], ["stale"]],
  }),
  retries: counter("gateway_retries_total", {
    help:
      "Requests that a worker lost before the first byte, and that were offered to another.",
  }),
  naks: counter("gateway_naks_total", {
    help: "Requests to a worker to send frames of an answer again.",
  }),
  cancels: counter("gateway_cancels_total", {
    help: "Requests that were stopped before their end, by reason.",
    labels: ["reason"],
    zeros: CANCEL_REASONS.map((reason) => [reason]),
  }),
  admissions: counter("gateway_admissions_total", {
    help:
      "Decisions on requests to models: `admitted`, `refused`, `unavailable` (no answer from Redis), `failed` (a fault, such as a corrupt record).",
    labels: ["result"],
    zeros: [["admitted"], ["refused"], ["unavailable"], ["failed"]],
  }),
  refusals: counter("gateway_refusals_total", {
    help:
      "Refused requests to models. `reason`: the limit (`requests`, `tokens`, `day`, `concurrency`, `images_per_day`, `characters_per_day`, `audio_seconds_per_day`, `video_seconds_per_day`, `video_jobs`), the missing right (`scope`, `model`) or the state of the key. `of`: whose limit, `key`, `owner` or `user` (an end user of a key).",
    labels: ["reason", "of"],
    zeros: [
      ...LIMIT_NAMES.flatMap((limit) => [[limit, "key"], [limit, "owner"]]),
      ["requests", "user"],
      ["tokens", "user"],
      ["budget_day", "user"],
      ["budget_held", "user"],
    ],
  }),
  failedRequestsLost: counter("gateway_failed_requests_lost_total", {
    help:
      "Refused, failed and slow requests that the usage and the log of their keys lack, because Redis did not take them.",
  }),
  admissionSeconds: histogram("gateway_admission_duration_seconds", {
    help: "How long Redis took to decide on a request to a model.",
    buckets: INTERNAL_SECONDS,
  }),
  kept: counter("gateway_kept_requests_total", {
    help:
      "Requests whose answers were to be kept: `new`, `replayed` (sent before, so they got that answer), `mismatch` (another request with the same `Idempotency-Key`), `full` (their account keeps as much as it may).",
    labels: ["result"],
    zeros: [["new"], ["replayed"], ["mismatch"], ["full"]],
  }),
  keptTakenOver: counter("gateway_kept_taken_over_total", {
    help:
      "Kept answers that ended without the edge that had their request: `complete`, or `failed` because their worker was lost as well.",
    labels: ["state"],
    zeros: [["complete"], ["failed"]],
  }),
  running: gauge("gateway_chats", {
    help:
      "Requests to models that have not ended, media too: `waiting` for a worker, or `running`.",
    labels: ["state"],
  }),
  queueWaiting: gauge("gateway_queue_waiting", {
    help:
      "Requests that wait at this edge for a worker of a `model`, of `chat` or of `media`; uploads together, as `chat uploads` or `media uploads`.",
    labels: ["family", "model"],
  }),
  queueOldest: gauge("gateway_queue_oldest_seconds", {
    help: "How long the oldest of them has waited, in seconds.",
    labels: ["family", "model"],
  }),
  leases: gauge("gateway_leases", {
    help: "Requests of this edge that hold a slot of their key in Redis.",
  }),
  unsettled: gauge("gateway_unsettled", {
    help: "Requests that have ended but whose cost has not reached Redis yet.",
  }),
  workers: gauge("gateway_known_workers", {
    help: "Workers whose beats this edge receives: of `chat`, of `media`.",
    labels: ["family"],
  }),
  slots: gauge("gateway_known_slots", {
    help:
      "Slots of the workers whose beats this edge receives: `used`, `free`.",
    labels: ["family", "state"],
  }),
} as const;

const MS_PER_SECOND = 1_000;

/** What an edge counts: a method for each event. */
export class EdgeMetrics {
  readonly #metrics;

  /** Registers the metrics of an edge. */
  constructor(registry: MetricRegistry) {
    this.#metrics = registry.record(EDGE_METRICS);
  }

  /**
   * A response was sent, or its client has disconnected, `durationMs` after the request
   * arrived.
   */
  answered(route: string, status: number, durationMs: number): void {
    this.#metrics.requests.with(route, String(status)).add();
    this.#metrics.requestSeconds.with(route).observeMs(durationMs);
  }

  /** A run has ended, `durationMs` after its request arrived. */
  ran(facts: RunFacts, outcome: RunOutcome, durationMs: number): void {
    const { kind, model } = facts;
    const { error, cancelReason, dispatchMs } = outcome;
    const metrics = this.#metrics;
    const isChat = UNIT_OF_KIND[kind] === null;
    const runs = isChat ? metrics.runs : metrics.mediaRuns;
    runs.with(model, outcome.kind, error?.code ?? "").add();
    metrics.retries.add(outcome.repeats);
    metrics.naks.add(outcome.naks);
    for (const reason of outcome.rejects) metrics.rejects.with(reason).add();
    if (cancelReason !== null) metrics.cancels.with(cancelReason).add();
    if (dispatchMs !== null) metrics.dispatchWait.observeMs(dispatchMs);
    this.#observeBytes(facts, outcome, durationMs);
  }

  /** A running answer has asked for more of budgets. */
  stepped(result: StepResult): void {
    this.#metrics.holdSteps.with(result).add();
  }

  /** A request has ended, and its cost goes to Redis. */
  charged({ model, endpoint, unit, rate }: ChargeSubject, cost: Cost): void {
    for (const [kind, units] of sharesOf(cost, unit, rate)) {
      this.#metrics.cost.with(model, kind).add(units);
    }
    if (cost.isUnpriced) this.#metrics.unpriced.with(model).add();
    if (unit !== null) {
      this.#countUnits(model, unit, cost.unitsMade ?? 0);
      return;
    }
    const { tokens, cacheTokens } = this.#metrics;
    const { cachedTokens = 0, cacheWriteTokens = 0 } = cost;
    const at = endpoint ?? "";
    tokens.with(model, at, "prompt").add(cost.promptTokens);
    tokens.with(model, at, "completion").add(cost.completionTokens);
    if (cachedTokens > 0) {
      cacheTokens.with(model, at, "read").add(cachedTokens);
    }
    if (cacheWriteTokens > 0) {
      cacheTokens.with(model, at, "written").add(cacheWriteTokens);
    }
  }

  /** A request whose edge was lost was charged; its usage fields end so. */
  lostCharged(suffix: string, nanos: number): void {
    const { model } = parseUsageSuffix(suffix);
    if (nanos === 0) return;
    this.#metrics.cost.with(model, "lost").add(nanos / NANOS_PER_UNIT);
  }

  /** Redis did not take this many refused and failed requests. */
  failedRequestsLost(count: number): void {
    this.#metrics.failedRequestsLost.add(count);
  }

  /** An answer is to be kept, or was found. */
  keeping(result: "new" | "replayed" | "mismatch" | "full"): void {
    this.#metrics.kept.with(result).add();
  }

  /** A kept answer has ended without its edge. */
  keptTakenOver(state: "complete" | "failed"): void {
    this.#metrics.keptTakenOver.with(state).add();
  }

  /** Redis has decided on a request, or has not answered. */
  decided(decision: Decision, durationMs: number): void {
    const { admissionSeconds, admissions, refusals } = this.#metrics;
    admissionSeconds.observeMs(durationMs);
    const isRefused = typeof decision !== "string" && !decision.isAdmitted;
    const allowed = isRefused ? "refused" : "admitted";
    admissions.with(typeof decision === "string" ? decision : allowed).add();
    if (!isRefused) return;
    const [reason, holder] = decision.reason === "limited"
      ? [decision.limit, decision.holder]
      : [decision.reason, "key"];
    refusals.with(reason, holder).add();
  }

  /** Times of a run that has sent something: its first byte, and between tokens. */
  #observeBytes(
    { kind, model, stream }: RunFacts,
    outcome: RunOutcome,
    durationMs: number,
  ): void {
    const { firstByteMs } = outcome;
    if (firstByteMs === null) return;
    const { firstToken, mediaFirstByte, tokenGap } = this.#metrics;
    const firstMs = durationMs - outcome.durationMs + firstByteMs;
    if (UNIT_OF_KIND[kind] !== null) {
      mediaFirstByte.with(model).observeMs(firstMs);
      return;
    }
    if (!stream) return;
    firstToken.with(model).observeMs(firstMs);
    const gaps = outcome.completionTokens - 1;
    if (outcome.kind !== "complete" || gaps < 1) return;
    tokenGap.with(model).observeMs((outcome.durationMs - firstByteMs) / gaps);
  }

  #countUnits(model: string, unit: UsageUnit, count: number): void {
    this.#metrics.mediaUnits.with(model, unitLabel(unit)).add(count);
  }
}

/** Registers what is read from the parts of an edge at each scrape. */
export function observeEdge(
  registry: MetricRegistry,
  { dispatcher, leases }: {
    dispatcher: Pick<Dispatcher, "running"> & {
      queue: Pick<Dispatcher["queue"], "length" | "lanes">;
      workers: Pick<Dispatcher["workers"], "totals">;
    };
    leases: { readonly running: number; readonly unsettled: number };
  },
): void {
  const { workers } = dispatcher;
  registry.gauge(EDGE_METRICS.running, () => [
    [["waiting"], dispatcher.queue.length],
    [["running"], dispatcher.running - dispatcher.queue.length],
  ]);
  const { queue } = dispatcher;
  const waiting = () =>
    WORKER_FAMILIES.flatMap((family) =>
      [...queue.lanes(family)].map(([lane, waits]) =>
        [[family, lane], waits] as const
      )
    );
  registry.gauge(
    EDGE_METRICS.queueWaiting,
    () => waiting().map(([labels, { requests }]) => [labels, requests]),
  );
  registry.gauge(
    EDGE_METRICS.queueOldest,
    () =>
      waiting().map((
        [labels, { oldestMs }],
      ) => [labels, oldestMs / MS_PER_SECOND]),
  );
  registry.gauge(EDGE_METRICS.leases, () => leases.running);
  registry.gauge(EDGE_METRICS.unsettled, () => leases.unsettled);
  const all = () =>
    WORKER_FAMILIES.map((each) => [each, workers.totals(each)] as const);
  registry.gauge(
    EDGE_METRICS.workers,
    () => all().map(([family, { workers }]) => [[family], workers]),
  );
  registry.gauge(
    EDGE_METRICS.slots,
    () =>
      all().flatMap(([family, { slots, used }]) => [
        [[family, "used"], used],
        [[family, "free"], Math.max(0, slots - used)],
      ]),
  );
}

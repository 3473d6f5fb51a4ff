/** The Prometheus metrics of the worker. A job is counted once, at its end. */
import { unitLabel } from "../keys/limiter_state.ts";
import type { Catalog } from "../models/catalog.ts";
import { UNIT_OF_KIND } from "../models/kinds.ts";
import type { Usage } from "../openai/completion.ts";
import {
  ANSWER_SECONDS,
  counter,
  gauge,
  histogram,
  type MetricRegistry,
} from "../process/metrics.ts";
import type { KeyState } from "../server_limits/keyring.ts";
import { ODDITIES, type OddityReport } from "../upstream/oddities.ts";
import type { BreakerState } from "../backends/breaker.ts";
import type { AttemptReport } from "../upstream/attempt.ts";
import type { JobReport, TurnResult } from "./jobs/job_report.ts";

/** Every metric of the worker except those that all services have. */
export const WORKER_METRICS = {
  slots: gauge("gateway_worker_slots", {
    help: "The most jobs that this worker runs at once.",
  }),
  inFlight: gauge("gateway_worker_in_flight", {
    help: "Jobs that are running.",
  }),
  draining: gauge("gateway_worker_draining", {
    help: "1 while the worker is draining and accepts no jobs, else 0.",
  }),
  jobs: counter("gateway_jobs_total", {
    help:
      "Jobs by outcome: `complete`, `failed`, `cancelled`, `rejected` (a limit of the model servers was met after all, and the edge queues it again). `code` is the error code, empty without an error.",
    labels: ["model", "outcome", "code"],
  }),
  jobSeconds: histogram("gateway_job_duration_seconds", {
    help: "Time from the arrival of a job until its backend has finished.",
    labels: ["model"],
    buckets: ANSWER_SECONDS,
  }),
  jobTokens: counter("gateway_job_tokens_total", {
    help: "Completion tokens that backends generated, including cut answers.",
    labels: ["model"],
  }),
  jobUnits: counter("gateway_job_units_total", {
    help:
      "What backends made for models without tokens, including cut answers. `unit`: `images`, `characters` (spoken), `audio_seconds` (transcribed). Only edges count seconds of video.",
    labels: ["model", "unit"],
  }),
  jobRejects: counter("gateway_job_rejects_total", {
    help:
      "Jobs that this worker rejected: `full`, `saturated` (the model servers are at limits of theirs), `draining`, `stale`, `unknown_model`, `unsupported_version`.",
    labels: ["reason"],
  }),
  turns: counter("gateway_worker_turns_total", {
    help:
      "Slots that this worker kept for an edge whose turn it was: `given`; `returned` if the edge did not need it, `expired` if it sent nothing.",
    labels: ["result"],
  }),
  framesSent: counter("gateway_frames_sent_total", {
    help: "Frames of finished answers sent to edges, including repeats.",
  }),
  framesRepeated: counter("gateway_frames_repeated_total", {
    help: "Frames of finished answers that were sent again.",
  }),
  wakeUps: counter("gateway_wake_ups_total", {
    help:
      "Times that the process was stalled for so long that it rejected the jobs that had piled up.",
  }),
  attempts: counter("gateway_backend_attempts_total", {
    help:
      "Attempts at model servers by outcome: `success`, `aborted` (the answer was no longer needed), or the fault.",
    labels: ["model", "backend", "outcome"],
  }),
  attemptSeconds: histogram("gateway_backend_duration_seconds", {
    help: "Time from a request to a model server to the end of its answer.",
    labels: ["backend"],
    buckets: ANSWER_SECONDS,
  }),
  firstTokenSeconds: histogram("gateway_backend_first_token_seconds", {
    help: "Time from a request to a model server to its first token.",
    labels: ["backend"],
    buckets: ANSWER_SECONDS,
  }),
  promptTokens: counter("gateway_backend_prompt_tokens_total", {
    help:
      "Prompt tokens of complete answers of model servers, as they state them or as estimated.",
    labels: ["model", "backend"],
  }),
  cachedTokens: counter("gateway_backend_cached_tokens_total", {
    help:
      "Those of the prompt tokens that the model server had in its cache, as it states them.",
    labels: ["model", "backend"],
  }),
  oddities: counter("gateway_backend_oddities_total", {
    help: `What was undone or skipped in answers of model servers. \`kind\`: ${
      Object.entries(ODDITIES)
        .map(([kind, meaning]) => `\`${kind}\` (${meaning})`).join(", ")
    }.`,
    labels: ["model", "backend", "kind"],
  }),
  keyInFlight: gauge("gateway_server_key_in_flight", {
    help:
      "Requests of this worker that run with a key of a model server that has limits or several keys. `key`: its variable.",
    labels: ["model", "backend", "key"],
  }),
  keyResting: gauge("gateway_server_key_resting", {
    help:
      "1 while such a key rests: `why` is `limit` (its server has asked for that) or `dead` (its server does not accept it); else 0.",
    labels: ["model", "backend", "key", "why"],
  }),
  keyRefusals: counter("gateway_server_key_refusals_total", {
    help:
      "Times that a model server has made such a key rest: `why` is `limit` or `dead`.",
    labels: ["model", "backend", "key", "why"],
  }),
  probes: counter("gateway_backend_probes_total", {
    help:
      "Probes of model servers by outcome: `success`, `failure`, `unclear` (the server is at a limit).",
    labels: ["model", "backend", "outcome"],
  }),
  probeFailed: gauge("gateway_backend_probe_failed", {
    help:
      "1 while the last probe of a backend has failed, else 0. Only of backends that this worker has probed.",
    labels: ["model", "backend"],
  }),
  breaker: gauge("gateway_backend_breaker", {
    help:
      "Circuit breaker of a backend: 0 closed, 0.5 half-open (the next request is a probe), 1 open (no requests).",
    labels: ["model", "backend"],
  }),
} as const;

const BREAKER_VALUES = { closed: 0, "half-open": 0.5, open: 1 } as const;

/** Counts what a worker and its backends did. */
export class WorkerMetrics {
  readonly #recorders;
  readonly #catalog: Pick<Catalog, "get">;

  /** `catalog` has the kinds of models; one that it lacks counts as a chat model. */
  constructor(
    registry: MetricRegistry,
    catalog: Pick<Catalog, "get"> = new Map(),
  ) {
    this.#recorders = registry.record(WORKER_METRICS);
    this.#catalog = catalog;
  }

  /** A job was rejected. */
  rejected(reason: string): void {
    this.#recorders.jobRejects.with(reason).add();
  }

  /** A job has freed its slot. */
  ended(report: JobReport): void {
    const { jobs, jobSeconds, jobTokens, jobUnits } = this.#recorders;
    const { model = "", outcome, errorCode = "" } = report;
    jobs.with(model, outcome, errorCode).add();
    jobSeconds.with(model).observeMs(report.durationMs);
    const unit = UNIT_OF_KIND[this.#catalog.get(model)?.kind ?? "chat"];
    const recorder = unit === null
      ? jobTokens.with(model)
      : jobUnits.with(model, unitLabel(unit));
    recorder.add(report.completionTokens);
  }

  /** An answer was forgotten, which took this many frames. */
  sent(
    { framesSent, framesRepeated }: {
      framesSent: number;
      framesRepeated: number;
    },
  ): void {
    this.#recorders.framesSent.add(framesSent);
    this.#recorders.framesRepeated.add(framesRepeated);
  }

  /** The process was stalled for so long that jobs have piled up. */
  wokeUp(): void {
    this.#recorders.wakeUps.add();
  }

  /** A slot was kept for an edge whose turn it was, or did not need it in time. */
  turn(result: TurnResult): void {
    this.#recorders.turns.with(result).add();
  }

  /** An attempt at a model server of `model` has ended. */
  attempted(model: string, report: AttemptReport): void {
    if (report.isProbe) return;
    const { attempts, attemptSeconds, firstTokenSeconds } = this.#recorders;
    const { backend, outcome, durationMs, firstTokenMs, usage } = report;
    attempts.with(model, backend, outcome).add();
    attemptSeconds.with(backend).observeMs(durationMs);
    if (usage !== undefined) this.#prompted(usage, model, backend);
    if (firstTokenMs === undefined) return;
    firstTokenSeconds.with(backend).observeMs(firstTokenMs);
  }

  #prompted(usage: Usage, model: string, backend: string): void {
    const { promptTokens, cachedTokens } = this.#recorders;
    const { cached_tokens: cached = 0 } = usage.prompt_tokens_details ?? {};
    promptTokens.with(model, backend).add(usage.prompt_tokens);
    cachedTokens.with(model, backend).add(cached);
  }

  /** A server has refused a key, so that it rests. */
  keyRefused(
    { model, backend, key }: { model: string; backend: string; key: string },
    why: "limit" | "dead",
  ): void {
    this.#recorders.keyRefusals.with(model, backend, key, why).add();
  }

  /** A probe of a backend of `model` has ended. */
  probed(model: string, backend: string, outcome: string): void {
    this.#recorders.probes.with(model, backend, outcome).add();
  }

  /** Something was undone or skipped in an answer of a backend of `model`. */
  odd(model: string, { backend, oddity, count }: OddityReport): void {
    this.#recorders.oddities.with(model, backend, oddity).add(count);
  }
}

/** What {@link observeWorker} reads at each scrape. */
export interface ObservedWorker {
  worker: { readonly inFlight: number; readonly isDraining: boolean };
  slots: number;
  /** The breakers of the backends of each model, by the names of the backends. */
  backends: Iterable<
    readonly [
      model: string,
      pool: {
        breakerStates(): ReadonlyMap<string, BreakerState>;
        keyStates(): Iterable<[backend: string, state: KeyState]>;
      },
    ]
  >;
  /** The backends that were probed. Absent: none was. */
  prober?: {
    results(): Iterable<{
      readonly model: string;
      readonly backend: string;
      readonly isFailed: boolean;
    }>;
  };
}

/** Registers the gauges of a worker. */
export function observeWorker(
  registry: MetricRegistry,
  { worker, slots, backends, prober }: ObservedWorker,
): void {
  const table = WORKER_METRICS;
  registry.gauge(table.slots, () => slots);
  registry.gauge(table.inFlight, () => worker.inFlight);
  registry.gauge(table.draining, () => worker.isDraining ? 1 : 0);
  registry.gauge(table.keyInFlight, function* () {
    for (const [model, pool] of backends) {
      for (const [backend, { variable, inFlight }] of pool.keyStates()) {
        yield [[model, backend, variable], inFlight];
      }
    }
  });
  registry.gauge(table.keyResting, function* () {
    for (const [model, pool] of backends) {
      for (const [backend, state] of pool.keyStates()) {
        const { variable, isCooling, isDead } = state;
        yield [[model, backend, variable, "limit"], isCooling ? 1 : 0];
        yield [[model, backend, variable, "dead"], isDead ? 1 : 0];
      }
    }
  });
  registry.gauge(table.probeFailed, function* () {
    for (const { model, backend, isFailed } of prober?.results() ?? []) {
      yield [[model, backend], isFailed ? 1 : 0];
    }
  });
  registry.gauge(table.breaker, function* () {
    for (const [model, pool] of backends) {
      for (const [backend, state] of pool.breakerStates()) {
        yield [[model, backend], BREAKER_VALUES[state]];
      }
    }
  });
}

/** The Prometheus metrics of the worker. A job is counted once, at its end. */
import { unitLabel } from "../keys/limiter_state.ts";
import type { Catalog } from "../models/catalog.ts";
import { UNIT_OF_KIND } from "../models/kinds.ts";
import {
  ANSWER_SECONDS,
  counter,
  gauge,
  histogram,
  type MetricRegistry,
} from "../process/metrics.ts";
import type { AttemptReport, BreakerState } from "../upstream/pool.ts";
import type { JobReport } from "./job.ts";
import type { Worker } from "./worker.ts";

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
      "Jobs by outcome: `complete`, `failed`, `cancelled`. `code` is the error code, empty without an error.",
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
    help: "Jobs that this worker rejected.",
    labels: ["reason"],
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
      "Requests to model servers by outcome: `success`, `aborted` (the answer was no longer needed), or the fault.",
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
  breaker: gauge("gateway_backend_breaker", {
    help:
      "Circuit breaker of a backend: 0 closed, 0.5 half-open (the next request is a probe), 1 open (no requests).",
    labels: ["model", "backend"],
  }),
} as const;

const BREAKER_VALUES = { closed: 0, "half-open": 0.5, open: 1 } as const;

export type WorkerMetrics = ReturnType<typeof createWorkerMetrics>;

export function createWorkerMetrics(
  registry: MetricRegistry,
  catalog: Catalog = new Map(),
) {
  const metrics = registry.record(WORKER_METRICS);
  return {
    ...metrics,
    ended(report: JobReport): void {
      const { model = "", outcome, errorCode = "" } = report;
      metrics.jobs.with(model, outcome, errorCode).add();
      metrics.jobSeconds.with(model).observeMs(report.durationMs);
      const unit = UNIT_OF_KIND[catalog.get(model)?.kind ?? "chat"];
      const made = unit === null
        ? metrics.jobTokens.with(model)
        : metrics.jobUnits.with(model, unitLabel(unit));
      made.add(report.completionTokens);
    },
    attempted(model: string, report: AttemptReport): void {
      const { backend, outcome, durationMs, firstTokenMs } = report;
      metrics.attempts.with(model, backend, outcome).add();
      metrics.attemptSeconds.with(backend).observeMs(durationMs);
      if (firstTokenMs === undefined) return;
      metrics.firstTokenSeconds.with(backend).observeMs(firstTokenMs);
    },
  };
}

export function observeWorker(
  registry: MetricRegistry,
  { worker, slots, backends }: {
    worker: Pick<Worker, "inFlight" | "isDraining">;
    slots: number;
    backends: ReadonlyMap<
      string,
      { breakerStates(): ReadonlyMap<string, BreakerState> }
    >;
  },
): void {
  const table = WORKER_METRICS;
  registry.gauge(table.slots, () => slots);
  registry.gauge(table.inFlight, () => worker.inFlight);
  registry.gauge(table.draining, () => worker.isDraining ? 1 : 0);
  registry.gauge(table.breaker, function* () {
    for (const [model, pool] of backends) {
      for (const [backend, state] of pool.breakerStates()) {
        yield [[model, backend], BREAKER_VALUES[state]];
      }
    }
  });
}

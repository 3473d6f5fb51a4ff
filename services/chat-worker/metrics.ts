/** What the worker exports for Prometheus. A job is counted once, at its end. */
import type { RejectReason } from "@gateway/shared/bus/frame";
import type { MetricRegistry } from "@gateway/shared/process/metrics";
import {
  ANSWER_SECONDS,
  counter,
  gauge,
  histogram,
} from "@gateway/shared/process/metrics";
import type { AttemptReport } from "./backends/pool.ts";
import type { BreakerState } from "./backends/breaker.ts";
import type { JobReport, JobTransport } from "./job.ts";

/** Every metric of the worker beside those that all services have. */
export const WORKER_METRICS = {
  slots: gauge("gateway_worker_slots", {
    help: "Jobs this worker runs at once at most.",
    labels: [],
  }),
  inFlight: gauge("gateway_worker_in_flight", {
    help: "Jobs that run now.",
    labels: [],
  }),
  kept: gauge("gateway_worker_kept_jobs", {
    help: "Jobs that run, or whose answer is not yet with its edge.",
    labels: [],
  }),
  buffered: gauge("gateway_worker_buffered_bytes", {
    help: "Bytes of answers that are kept until edges have acknowledged them.",
    labels: [],
  }),
  draining: gauge("gateway_worker_draining", {
    help: "1 while the worker takes no more jobs because it leaves, else 0.",
    labels: [],
  }),
  jobs: counter("gateway_jobs_total", {
    help:
      "Jobs by how they ended: `complete`, `failed`, `cancelled`. `code` is the error code, empty without an error.",
    labels: ["model", "outcome", "code"],
  }),
  jobSeconds: histogram("gateway_job_duration_seconds", {
    help: "From the arrival of a job to the end of its backend's work.",
    labels: ["model"],
    buckets: ANSWER_SECONDS,
  }),
  jobTokens: counter("gateway_job_tokens_total", {
    help: "Completion tokens the backends produced, cut answers included.",
    labels: ["model"],
  }),
  jobRejects: counter("gateway_job_rejects_total", {
    help: "Jobs this worker did not take.",
    labels: ["reason"],
  }),
  framesSent: counter("gateway_frames_sent_total", {
    help: "Frames of finished answers sent to edges, repeats included.",
    labels: [],
  }),
  framesRepeated: counter("gateway_frames_repeated_total", {
    help: "Frames of finished answers that were sent again.",
    labels: [],
  }),
  naksReceived: counter("gateway_naks_received_total", {
    help: "Times that edges asked for frames of finished answers again.",
    labels: [],
  }),
  wakeUps: counter("gateway_wake_ups_total", {
    help:
      "Times the process had slept so long that the jobs which had piled up were refused.",
    labels: [],
  }),
  attempts: counter("gateway_backend_attempts_total", {
    help:
      "Requests to model servers by how they ended: `success`, `aborted` (nobody wanted more), or what was wrong.",
    labels: ["model", "backend", "outcome"],
  }),
  attemptSeconds: histogram("gateway_backend_duration_seconds", {
    help: "From a request to a model server to the end of its answer.",
    labels: ["backend"],
    buckets: ANSWER_SECONDS,
  }),
  firstEventSeconds: histogram("gateway_backend_first_token_seconds", {
    help: "From a request to a model server to its first words.",
    labels: ["backend"],
    buckets: ANSWER_SECONDS,
  }),
  breaker: gauge("gateway_backend_breaker", {
    help:
      "Circuit breaker of a backend: 0 closed, 0.5 trying again, 1 open (it gets no requests).",
    labels: ["model", "backend"],
  }),
} as const;

/** Counts what the worker does. */
export interface WorkerMetrics {
  /** A job was not taken. */
  rejected(reason: RejectReason): void;
  /** The backend is done with a job. */
  ended(report: JobReport): void;
  /** The edge has all of an answer, or wants none of it. */
  finished(transport: JobTransport): void;
  /** The process noticed that it had slept. */
  wokeUp(): void;
  /** A request to a model server is over. */
  attempted(model: string, report: AttemptReport): void;
}

/** What the gauges of the worker look at. */
export interface WorkerState {
  worker: {
    readonly inFlight: number;
    readonly unfinished: number;
    readonly bufferedBytes: number;
    readonly isDraining: boolean;
  };
  slots: number;
  backends: ReadonlyMap<
    string,
    { breakerStates(): ReadonlyMap<string, BreakerState> }
  >;
}

const MS_PER_SECOND = 1_000;
const NO_CODE = "";
const NO_MODEL = "";
const BREAKER_VALUES: Record<BreakerState, number> = {
  closed: 0,
  "half-open": 0.5,
  open: 1,
};

/** Makes the counters of {@link WORKER_METRICS}. */
export function createWorkerMetrics(registry: MetricRegistry): WorkerMetrics {
  const table = WORKER_METRICS;
  const rejects = registry.counter(table.jobRejects);
  const wakeUps = registry.counter(table.wakeUps).with();
  const jobs = registry.counter(table.jobs);
  const jobSeconds = registry.histogram(table.jobSeconds);
  const jobTokens = registry.counter(table.jobTokens);
  const sent = registry.counter(table.framesSent).with();
  const repeated = registry.counter(table.framesRepeated).with();
  const naks = registry.counter(table.naksReceived).with();
  const attempts = registry.counter(table.attempts);
  const attemptSeconds = registry.histogram(table.attemptSeconds);
  const firstEventSeconds = registry.histogram(table.firstEventSeconds);
  return {
    rejected: (reason) => rejects.with(reason).add(),
    wokeUp: () => wakeUps.add(),
    ended({ model, outcome, errorCode, durationMs, completionTokens }) {
      const label = model ?? NO_MODEL;
      jobs.with(label, outcome, errorCode ?? NO_CODE).add();
      jobSeconds.with(label).observe(durationMs / MS_PER_SECOND);
      jobTokens.with(label).add(completionTokens);
    },
    finished(transport) {
      sent.add(transport.framesSent);
      repeated.add(transport.framesRepeated);
      naks.add(transport.naks);
    },
    attempted(model, { backend, outcome, durationMs, firstEventMs }) {
      attempts.with(model, backend, outcome).add();
      attemptSeconds.with(backend).observe(durationMs / MS_PER_SECOND);
      if (firstEventMs === null) return;
      firstEventSeconds.with(backend).observe(firstEventMs / MS_PER_SECOND);
    },
  };
}

/** Exports what stands in the worker's tables. */
export function observeWorker(
  registry: MetricRegistry,
  { worker, slots, backends }: WorkerState,
): void {
  registry.gauge(WORKER_METRICS.slots, () => [[[], slots]]);
  registry.gauge(WORKER_METRICS.inFlight, () => [[[], worker.inFlight]]);
  registry.gauge(WORKER_METRICS.kept, () => [[[], worker.unfinished]]);
  registry.gauge(WORKER_METRICS.buffered, () => [[[], worker.bufferedBytes]]);
  registry.gauge(
    WORKER_METRICS.draining,
    () => [[[], worker.isDraining ? 1 : 0]],
  );
  registry.gauge(WORKER_METRICS.breaker, function* () {
    for (const [model, pool] of backends) {
      for (const [backend, state] of pool.breakerStates()) {
        yield [[model, backend], BREAKER_VALUES[state]];
      }
    }
  });
}

/** The metrics of workers. */
import assert from "node:assert/strict";
import { parseCatalog } from "../models/catalog.ts";
import { MODEL_KINDS } from "../models/kinds.ts";
import { MetricRegistry } from "../process/metrics.ts";
import { observeWorker, WorkerMetrics } from "./metrics.ts";
import type { JobReport } from "./jobs/job_report.ts";

const COMPLETE: JobReport = {
  outcome: "complete",
  model: "m",
  promptTokens: 7,
  completionTokens: 5,
  firstByteMs: 10,
  durationMs: 250,
};

function samples(registry: MetricRegistry): string[] {
  return registry.text().split("\n").filter((line) =>
    line !== "" && !line.startsWith("#") && !line.includes("_bucket") &&
    !line.endsWith(" 0")
  ).map((line) => line.replace("gateway_", ""));
}

Deno.test("jobs, attempts and frames are counted at their end", () => {
  const registry = new MetricRegistry();
  const metrics = new WorkerMetrics(registry);
  metrics.ended(COMPLETE);
  const failed = { outcome: "failed", errorCode: "upstream_error" } as const;
  metrics.ended({ ...COMPLETE, ...failed, completionTokens: 2 });
  const { model: _, ...early } = COMPLETE;
  metrics.ended({ ...early, outcome: "cancelled", completionTokens: 0 });
  metrics.sent({ framesSent: 9, framesRepeated: 0 });
  const ended = { requestId: "r", backend: "b", durationMs: 250, error: null };
  const usage = {
    prompt_tokens: 9,
    completion_tokens: 1,
    total_tokens: 10,
    prompt_tokens_details: { cached_tokens: 4 },
  };
  metrics.attempted("m", {
    ...ended,
    outcome: "success",
    firstTokenMs: 100,
    usage,
  });
  metrics.attempted("m", { ...ended, outcome: "timeout" });
  assert.deepEqual(samples(registry), [
    'jobs_total{model="m",outcome="complete",code=""} 1',
    'jobs_total{model="m",outcome="failed",code="upstream_error"} 1',
    'jobs_total{model="",outcome="cancelled",code=""} 1',
    'job_duration_seconds_sum{model="m"} 0.5',
    'job_duration_seconds_count{model="m"} 2',
    'job_duration_seconds_sum{model=""} 0.25',
    'job_duration_seconds_count{model=""} 1',
    'job_tokens_total{model="m"} 7',
    "frames_sent_total 9",
    'backend_attempts_total{model="m",backend="b",outcome="success"} 1',
    'backend_attempts_total{model="m",backend="b",outcome="timeout"} 1',
    'backend_duration_seconds_sum{backend="b"} 0.5',
    'backend_duration_seconds_count{backend="b"} 2',
    'backend_first_token_seconds_sum{backend="b"} 0.1',
    'backend_first_token_seconds_count{backend="b"} 1',
    'backend_prompt_tokens_total{model="m",backend="b"} 9',
    'backend_cached_tokens_total{model="m",backend="b"} 4',
  ]);
});

Deno.test("the output of models without tokens is counted in their units", () => {
  const registry = new MetricRegistry();
  const type = "openai" as const;
  const backends = [{ type, base_url: "http://127.0.0.1/v1", model: "b" }];
  const models = MODEL_KINDS.map((kind) => ({ id: kind, kind, backends }));
  const metrics = new WorkerMetrics(registry, parseCatalog({ models }));
  for (const model of MODEL_KINDS) metrics.ended({ ...COMPLETE, model });
  const lines = samples(registry);
  assert.deepEqual(lines.filter((line) => /^job_(tokens|units)/.test(line)), [
    'job_tokens_total{model="chat"} 5',
    'job_tokens_total{model="embedding"} 5',
    'job_tokens_total{model="rerank"} 5',
    'job_units_total{model="image",unit="images"} 5',
    'job_units_total{model="speech",unit="characters"} 5',
    'job_units_total{model="transcription",unit="audio_seconds"} 5',
    'job_units_total{model="video",unit="video_seconds"} 5',
  ]);
});

Deno.test("gauges show slots, running jobs, and breakers", () => {
  const registry = new MetricRegistry();
  observeWorker(registry, {
    worker: { inFlight: 3, isDraining: true },
    slots: 8,
    backends: new Map([["m", {
      breakerStates: () =>
        new Map([["a", "open"], ["b", "half-open"], ["c", "closed"]] as const),
      keyStates: () => [["a", {
        variable: "KEY",
        inFlight: 2,
        isCooling: true,
        isDead: false,
      }]],
    }]]),
  });
  assert.deepEqual(samples(registry), [
    "worker_slots 8",
    "worker_in_flight 3",
    "worker_draining 1",
    'server_key_in_flight{model="m",backend="a",key="KEY"} 2',
    'server_key_resting{model="m",backend="a",key="KEY",why="limit"} 1',
    'backend_breaker{model="m",backend="a"} 1',
    'backend_breaker{model="m",backend="b"} 0.5',
  ]);
});

/** What an edge counts. */
import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import assert from "node:assert/strict";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { ApiError } from "@gateway/shared/openai/error";
import type { Decision } from "./limits/admission.ts";
import { RunOutcome } from "./dispatch/outcome.ts";
import type { Cost } from "./limits/cost.ts";
import { priced } from "./limits/rate.ts";
import { EdgeMetrics, observeEdge } from "./metrics.ts";

const PRINCIPAL = { keyId: "key_1", ownerId: "own_1" };
const COMPLETE: RunOutcome = Object.assign(new RunOutcome(), {
  usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 },
  completionTokens: 5,
  dispatchMs: 2,
  firstByteMs: 100,
  durationMs: 500,
});

const NO_TOKENS = {
  promptTokens: 0,
  completionTokens: 0,
  kind: "complete",
} as const;

function setup() {
  const registry = new MetricRegistry();
  const metrics = new EdgeMetrics(registry);
  return {
    registry,
    metrics,
    run(outcome: Partial<RunOutcome>, stream = true) {
      const facts = { kind: "chat" as const, model: "m", stream };
      // The request was read and admitted for 50 ms before its run began.
      metrics.ran(facts, { ...COMPLETE, ...outcome }, 550);
    },
    /** Samples above zero, without the buckets. */
    samples: (): string[] =>
      registry.text().split("\n").filter((line) =>
        line.startsWith("gateway_") && !line.includes("_bucket") &&
        !line.endsWith(" 0")
      ).map((line) => line.replace("gateway_", "")),
  };
}

Deno.test("a complete stream is counted once, with its times and tokens", () => {
  const t = setup();
  t.metrics.answered("chat", 200, 550);
  t.run({});
  const subject = { model: "m", endpoint: "messages", unit: null } as const;
  t.metrics.charged(subject, {
    promptTokens: 7,
    completionTokens: 5,
    cachedTokens: 4,
    cacheWriteTokens: 2,
    kind: "complete",
  });
  assert.deepEqual(t.samples(), [
    'requests_total{route="chat",status="200"} 1',
    'request_duration_seconds_sum{route="chat"} 0.55',
    'request_duration_seconds_count{route="chat"} 1',
    'chat_runs_total{model="m",outcome="complete",code=""} 1',
    // From the arrival, not from the start of the run.
    'time_to_first_token_seconds_sum{model="m"} 0.15',
    'time_to_first_token_seconds_count{model="m"} 1',
    // 400 ms for four gaps.
    'time_between_tokens_seconds_sum{model="m"} 0.1',
    'time_between_tokens_seconds_count{model="m"} 1',
    'tokens_total{model="m",endpoint="messages",kind="prompt"} 7',
    'tokens_total{model="m",endpoint="messages",kind="completion"} 5',
    'cache_tokens_total{model="m",endpoint="messages",kind="read"} 4',
    'cache_tokens_total{model="m",endpoint="messages",kind="written"} 2',
    "dispatch_wait_seconds_sum 0.002",
    "dispatch_wait_seconds_count 1",
  ]);
});

/** Prices in billionths: a million tokens cost 2, 0.5 and 8. */
const PRICES = {
  input: 2_000_000_000,
  cached_input: 500_000_000,
  output: 8_000_000_000,
};

Deno.test("costs are counted by model and price, those of lost requests apart, and what has no price as that", () => {
  const t = setup();
  const subject = { model: "m", endpoint: "chat", unit: null } as const;
  const cost: Cost = {
    promptTokens: 3_000_000,
    completionTokens: 500_000,
    cachedTokens: 1_000_000,
    kind: "complete",
  };
  for (const prices of [PRICES, null]) {
    const rate = { table: "t", prices };
    t.metrics.charged({ ...subject, rate }, priced(cost, null, rate));
  }
  t.metrics.lostCharged("@chat:m", 1_500_000_000);
  const costs = t.samples().filter((line) => /^(cost|unpriced)/.test(line));
  assert.deepEqual(costs, [
    'cost_total{model="m",kind="input"} 4',
    'cost_total{model="m",kind="cached_input"} 0.5',
    'cost_total{model="m",kind="output"} 4',
    'cost_total{model="m",kind="lost"} 1.5',
    'unpriced_total{model="m"} 1',
  ]);
});

Deno.test("what models without tokens make is counted in their units, videos when they are complete", () => {
  const t = setup();
  const facts = { kind: "image" as const, model: "m", stream: true };
  t.metrics.ran(facts, COMPLETE, 550);
  const subjectIn = (unit: UsageUnit) => ({ model: "m", endpoint: null, unit });
  for (const unit of ["images", "characters", "audioSeconds"] as const) {
    t.metrics.charged(subjectIn(unit), { ...NO_TOKENS, unitsMade: 5 });
  }
  t.metrics.charged(subjectIn("videoSeconds"), {
    ...NO_TOKENS,
    unitsMade: null,
  });
  t.metrics.charged(subjectIn("videoSeconds"), { ...NO_TOKENS, unitsMade: 8 });
  const lines = t.samples().filter((line) => /tokens|units/.test(line));
  assert.deepEqual(lines, [
    'media_units_total{model="m",unit="images"} 5',
    'media_units_total{model="m",unit="characters"} 5',
    'media_units_total{model="m",unit="audio_seconds"} 5',
    'media_units_total{model="m",unit="video_seconds"} 8',
  ]);
});

Deno.test("time between tokens is known only of whole streams of two tokens or more", () => {
  const rows: {
    outcome: Partial<RunOutcome>;
    stream: boolean;
    isKnown: boolean;
  }[] = [
    { outcome: { completionTokens: 2 }, stream: true, isKnown: true },
    { outcome: { completionTokens: 1 }, stream: true, isKnown: false },
    { outcome: { completionTokens: 0 }, stream: true, isKnown: false },
    { outcome: { firstByteMs: null }, stream: true, isKnown: false },
    { outcome: { kind: "cancelled" }, stream: true, isKnown: false },
    { outcome: {}, stream: false, isKnown: false },
  ];
  for (const { outcome, stream, isKnown } of rows) {
    const t = setup();
    t.run(outcome, stream);
    const samples = t.samples().filter((line) => line.includes("between"));
    assert.equal(samples.length > 0, isKnown, JSON.stringify(outcome));
  }
});

Deno.test("faults during a run are counted", () => {
  const t = setup();
  t.run({
    kind: "failed",
    error: new ApiError("worker_lost", "Lost"),
    usage: null,
    completionTokens: 0,
    rejects: ["full", "full", "stale"],
    repeats: 1,
    naks: 3,
    cancelReason: "client_gone",
    dispatchMs: null,
    firstByteMs: null,
  });
  assert.deepEqual(t.samples(), [
    'chat_runs_total{model="m",outcome="failed",code="worker_lost"} 1',
    'rejects_total{reason="full"} 2',
    'rejects_total{reason="stale"} 1',
    "retries_total 1",
    "naks_total 3",
    'cancels_total{reason="client_gone"} 1',
  ]);
});

Deno.test("every decision is counted, refusals by limit and by key or owner", () => {
  const t = setup();
  const rates = { requests: null, tokens: null };
  const decisions: Decision[] = [
    {
      isAdmitted: true,
      id: "l1",
      principal: PRINCIPAL,
      model: null,
      atMs: 0,
      reservedTokens: 1,
      reservedUnits: null,
      rates,
    },
    "unavailable",
    "failed",
    {
      isAdmitted: false,
      reason: "limited",
      limit: "tokens",
      holder: "owner",
      waitMs: 10,
      rates,
    },
    { isAdmitted: false, reason: "model" },
    { isAdmitted: false, reason: "disabled" },
  ];
  for (const decision of decisions) t.metrics.decided(decision, 2);
  assert.deepEqual(t.samples(), [
    'admissions_total{result="admitted"} 1',
    'admissions_total{result="refused"} 3',
    'admissions_total{result="unavailable"} 1',
    'admissions_total{result="failed"} 1',
    'refusals_total{reason="tokens",of="owner"} 1',
    'refusals_total{reason="model",of="key"} 1',
    'refusals_total{reason="disabled",of="key"} 1',
    "admission_duration_seconds_sum 0.012",
    "admission_duration_seconds_count 6",
  ]);
});

Deno.test("gauges show the edge's tables, and free slots never below zero", () => {
  const t = setup();
  observeEdge(t.registry, {
    dispatcher: {
      running: 5,
      queue: {
        length: 2,
        lanes: (family) => {
          const waits = { requests: 1, tokens: 9, weight: 1 };
          return new Map([
            family === "chat"
              ? ["m", { ...waits, oldestMs: 1_500 }]
              : ["media uploads", { ...waits, oldestMs: 0 }],
          ]);
        },
      },
      // Beats are older than what was sent since.
      workers: {
        totals: (family) =>
          family === "chat"
            ? { workers: 2, slots: 4, used: 6 }
            : { workers: 0, slots: 0, used: 0 },
      },
    },
    leases: { running: 5, unsettled: 1 },
  });
  assert.deepEqual(t.samples(), [
    'chats{state="waiting"} 2',
    'chats{state="running"} 3',
    'queue_waiting{family="chat",model="m"} 1',
    'queue_waiting{family="media",model="media uploads"} 1',
    'queue_oldest_seconds{family="chat",model="m"} 1.5',
    "leases 5",
    "unsettled 1",
    'known_workers{family="chat"} 2',
    'known_slots{family="chat",state="used"} 6',
  ]);
});

/**
 * What a chat request pays for being counted, beside the same with the counters of
 * prom-client: `deno bench bench/metrics_bench.ts`
 */
import { Counter, Histogram, Registry } from "prom-client";
import { MetricRegistry } from "@gateway/shared/metrics/registry";
import { startWorkSpan } from "@gateway/shared/process/tracing";
import type { RunOutcome } from "../services/edge-auth/dispatch/run.ts";
import { createEdgeMetrics } from "../services/edge-auth/metrics.ts";

const OUTCOME: RunOutcome = {
  kind: "complete",
  usage: { prompt_tokens: 7, completion_tokens: 50, total_tokens: 57 },
  completionTokens: 50,
  isHeard: true,
  error: null,
  workerId: "w1",
  offers: 1,
  dispatchMs: 2,
  firstByteMs: 100,
  durationMs: 500,
  repeats: 0,
  rejects: [],
  naks: 0,
  cancelReason: null,
};
const RUN = {
  requestId: "r",
  principal: { keyId: "key_1", ownerId: "own_1" },
  request: {
    model: "neutral-3.7-plus",
    messages: [],
    stream: true,
    include_usage: false,
    n: 1,
  },
  outcome: OUTCOME,
  durationMs: 550,
};
const metrics = createEdgeMetrics(new MetricRegistry());

Deno.bench({
  name: "count a chat request",
  group: "count",
  baseline: true,
  fn() {
    metrics.decided({ result: "unavailable", durationMs: 1 });
    metrics.answered("chat", 200);
    metrics.ran(RUN);
  },
});

const registers = [new Registry()];
const help = "For comparison.";
const counter = new Counter({
  name: "counter",
  help,
  labelNames: ["a", "b"],
  registers,
});
const histogram = new Histogram({
  name: "histogram",
  help,
  labelNames: ["a"],
  registers,
});

Deno.bench({
  name: "the same with prom-client",
  group: "count",
  fn() {
    for (let i = 0; i < 7; i++) counter.inc({ a: "chat", b: "200" });
    for (let i = 0; i < 5; i++) histogram.observe({ a: "chat" }, 0.3);
  },
});

Deno.bench("a span while nothing is traced", () => {
  startWorkSpan("chat", {
    kind: "producer",
    parent: undefined,
    attributes: { "gen_ai.request.model": "neutral-3.7-plus" },
  }).end({ "gateway.outcome": "complete" });
});

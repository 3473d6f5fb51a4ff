/** What a chat request pays for being counted: `deno bench bench/metrics_bench.ts` */
import { MetricRegistry } from "@gateway/shared/process/metrics";
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
  fn() {
    metrics.decided({ result: "unavailable", durationMs: 1 });
    metrics.answered("chat", 200);
    metrics.ran(RUN);
  },
});

Deno.bench("a span while nothing is traced", () => {
  startWorkSpan("chat", {
    kind: "producer",
    parent: undefined,
    attributes: { "gen_ai.request.model": "neutral-3.7-plus" },
  }).end({ "gateway.outcome": "complete" });
});

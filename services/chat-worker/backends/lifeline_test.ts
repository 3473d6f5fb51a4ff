import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createLifeline, type Lifeline, type Phase } from "./lifeline.ts";
import { UpstreamError } from "./upstream_error.ts";

function start(signal: AbortSignal, totalMs: number): Lifeline {
  return createLifeline({ now: monotonicNow, signal, totalMs });
}

/** Resolves when the lifeline ends. */
function ended(lifeline: Lifeline): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  lifeline.onEnd(resolve);
  return promise;
}

const deadlines: {
  name: string;
  totalMs: number;
  arm: (lifeline: Lifeline) => void;
  expired: Phase;
}[] = [
  { name: "the total", totalMs: 20, arm: () => {}, expired: "total" },
  {
    name: "a phase",
    totalMs: 60_000,
    arm: (lifeline) => lifeline.arm("connect", 20),
    expired: "connect",
  },
  {
    name: "a phase shorter than the one before",
    totalMs: 60_000,
    arm: (lifeline) => {
      lifeline.arm("firstToken", 60_000);
      lifeline.arm("betweenTokens", 20);
    },
    expired: "betweenTokens",
  },
  {
    name: "the total before the phase",
    totalMs: 20,
    arm: (lifeline) => lifeline.arm("firstToken", 60_000),
    expired: "total",
  },
  {
    name: "the total while resting",
    totalMs: 20,
    arm: (lifeline) => {
      lifeline.arm("betweenTokens", 5);
      lifeline.rest();
    },
    expired: "total",
  },
];

for (const { name, totalMs, arm, expired } of deadlines) {
  Deno.test(`createLifeline() ends at ${name}`, async () => {
    const lifeline = start(new AbortController().signal, totalMs);
    arm(lifeline);
    await ended(lifeline);
    assert.equal(lifeline.expired, expired);
    assert.ok(lifeline.reason instanceof UpstreamError);
    assert.equal(lifeline.reason.code, "upstream_timeout");
    assert.throws(() => lifeline.throwIfEnded(), lifeline.reason);
    lifeline.dispose();
  });
}

Deno.test("createLifeline() does not end while its phase is armed again in time", async () => {
  const lifeline = start(new AbortController().signal, 60_000);
  const startedAt = performance.now();
  lifeline.arm("betweenTokens", 40);
  while (performance.now() - startedAt < 120) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    lifeline.throwIfEnded();
    lifeline.arm("betweenTokens", 40);
  }
  await ended(lifeline);
  assert.equal(lifeline.expired, "betweenTokens");
  lifeline.dispose();
});

Deno.test("createLifeline() ends with the signal's reason", () => {
  const controller = new AbortController();
  const reason = new Error("Client left");
  const lifeline = start(controller.signal, 60_000);
  let closed = 0;
  lifeline.onEnd(() => closed++);
  lifeline.throwIfEnded();
  controller.abort(reason);
  assert.equal(closed, 1);
  assert.throws(() => lifeline.throwIfEnded(), reason);
  assert.equal(lifeline.expired, null);
  lifeline.arm("connect", 0);
  lifeline.dispose();
});

Deno.test("createLifeline() has ended at once when the signal has", () => {
  const lifeline = start(AbortSignal.abort(), 60_000);
  let closed = 0;
  lifeline.onEnd(() => closed++);
  assert.equal(closed, 1);
  lifeline.dispose();
});

Deno.test("createLifeline() closes nothing after it was disposed of", () => {
  const controller = new AbortController();
  const lifeline = start(controller.signal, 60_000);
  lifeline.onEnd(() => assert.fail("closed"));
  lifeline.arm("connect", 1);
  lifeline.dispose();
  controller.abort();
  lifeline.arm("connect", 1);
});

Deno.test("throwIfEnded() throws once the total has passed, even if no timer could run", () => {
  let nowMs = 0;
  const signal = new AbortController().signal;
  const lifeline = createLifeline({ now: () => nowMs, signal, totalMs: 5_000 });
  lifeline.arm("betweenTokens", 60_000);
  nowMs = 4_999;
  lifeline.throwIfEnded();
  nowMs = 5_000;
  assert.throws(() => lifeline.throwIfEnded(), { code: "upstream_timeout" });
  assert.equal(lifeline.expired, "total");
  lifeline.dispose();
});

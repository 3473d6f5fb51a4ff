import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { AttemptDeadlines } from "./attempt_deadlines.ts";
import { UpstreamError } from "./errors.ts";

function start(
  signal = new AbortController().signal,
  now = monotonicNow,
): AttemptDeadlines {
  return new AttemptDeadlines(now, signal, 60_000);
}

/** Resolves when the attempt ends. */
function ended(deadlines: AttemptDeadlines): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  deadlines.signal.addEventListener("abort", () => resolve());
  return promise;
}

/** The deadline that has passed, by the error that is thrown. */
function expiredOf(deadlines: AttemptDeadlines): string {
  try {
    deadlines.throwIfEnded();
  } catch (error) {
    assert.ok(error instanceof UpstreamError);
    assert.equal(error.code, "upstream_timeout");
    return String(error.cause).replace("Error: Deadline passed: ", "");
  }
  return "";
}

Deno.test("AttemptDeadlines does not end while its phase is armed again in time", async () => {
  let nowMs = 0;
  const deadlines = start(new AbortController().signal, () => nowMs);
  deadlines.arm("betweenTokens", 40);
  while (nowMs < 120) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    nowMs += 5;
    deadlines.throwIfEnded();
    deadlines.arm("betweenTokens", 40);
  }
  nowMs += 40;
  await ended(deadlines);
  assert.equal(expiredOf(deadlines), "betweenTokens");
  deadlines.dispose();
});

Deno.test("AttemptDeadlines does not end after it was disposed of", () => {
  const controller = new AbortController();
  const deadlines = start(controller.signal);
  deadlines.arm("connect", 1);
  deadlines.dispose();
  controller.abort();
  deadlines.arm("connect", 1);
  assert.ok(!deadlines.signal.aborted);
});

Deno.test("throwIfEnded() throws once the total has passed, even if no timer could run", () => {
  let nowMs = 0;
  const signal = new AbortController().signal;
  const deadlines = new AttemptDeadlines(() => nowMs, signal, 5_000);
  deadlines.arm("betweenTokens", 60_000);
  nowMs = 4_999;
  deadlines.throwIfEnded();
  nowMs = 5_000;
  assert.equal(expiredOf(deadlines), "total");
  deadlines.dispose();
});

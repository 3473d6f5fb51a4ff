/** How many requests to count tokens a key may send. */
import assert from "node:assert/strict";
import { COUNT_LIMITS } from "@gateway/shared/limits";
import { CountLimit } from "./count_limit.ts";

Deno.test("CountLimit permits a burst for each key, then one request at each interval", () => {
  let nowMs = 0;
  const limit = new CountLimit(() => nowMs);
  const count = (key: string) => limit.take(key)();
  for (let n = 0; n < COUNT_LIMITS.burst; n++) count("a");
  assert.throws(() => count("a"), {
    code: "rate_limit_exceeded",
    retryAfterMs: COUNT_LIMITS.intervalMs,
  });
  count("b");
  nowMs += COUNT_LIMITS.intervalMs;
  count("a");
  assert.throws(() => count("a"));
  nowMs += COUNT_LIMITS.burst * COUNT_LIMITS.intervalMs;
  for (let n = 0; n < COUNT_LIMITS.burst; n++) count("a");
  assert.throws(() => count("a"));
});

Deno.test("CountLimit bounds the requests of a key at once, and permits more when one has ended", () => {
  const limit = new CountLimit(() => 0);
  const ends = Array.from(
    { length: COUNT_LIMITS.runningMax },
    () => limit.take("a"),
  );
  const full = { code: "concurrency_limit_exceeded", retryAfterMs: 1_000 };
  assert.throws(() => limit.take("a"), full);
  limit.take("b");
  ends[0]?.();
  limit.take("a");
  assert.throws(() => limit.take("a"), full);
});

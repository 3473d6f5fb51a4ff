import assert from "node:assert/strict";
import { COUNT_LIMITS } from "@gateway/shared/limits";
import { CountLimit } from "./count_limit.ts";

Deno.test("CountLimit permits a burst for each key, then one request at each interval", () => {
  let nowMs = 0;
  const limit = new CountLimit(() => nowMs);
  for (let n = 0; n < COUNT_LIMITS.burst; n++) limit.take("a");
  assert.throws(() => limit.take("a"), {
    code: "rate_limit_exceeded",
    retryAfterMs: COUNT_LIMITS.intervalMs,
  });
  limit.take("b");
  nowMs += COUNT_LIMITS.intervalMs;
  limit.take("a");
  assert.throws(() => limit.take("a"));
  nowMs += COUNT_LIMITS.burst * COUNT_LIMITS.intervalMs;
  for (let n = 0; n < COUNT_LIMITS.burst; n++) limit.take("a");
  assert.throws(() => limit.take("a"));
});

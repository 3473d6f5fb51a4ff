/** The headers of errors. */
import assert from "node:assert/strict";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { errorHeaders } from "./responses.ts";

Deno.test("errorHeaders() says how long to wait, at least a second for those who round, and what not to repeat", () => {
  const never = { "x-should-retry": "false" };
  const waits: { retryAfterMs: number; seconds: string; ms: string }[] = [
    { retryAfterMs: 0, seconds: "1", ms: "1" },
    { retryAfterMs: 60_000, seconds: "60", ms: "60000" },
    { retryAfterMs: 60_001, seconds: "61", ms: "60001" },
    { retryAfterMs: 999.1, seconds: "1", ms: "1000" },
    { retryAfterMs: 1_000, seconds: "1", ms: "1000" },
    { retryAfterMs: 1_000.1, seconds: "2", ms: "1001" },
    { retryAfterMs: 86_400_000, seconds: "86400", ms: "86400000" },
  ];
  for (const { retryAfterMs, seconds, ms } of waits) {
    const error = new ApiError("overloaded", "Busy", { retryAfterMs });
    const expected = {
      "retry-after": seconds,
      "retry-after-ms": ms,
      // SDKs wait for weeks if the header says so, or retry at once.
      ...retryAfterMs > 60_000 && never,
    };
    assert.deepEqual(errorHeaders(error), expected);
  }
  const codes: [code: ErrorCode, headers: Record<string, string>][] = [
    ["invalid_value", {}],
    ["request_timeout", {}],
    ["rate_limit_exceeded", {}],
    ["service_unavailable", {}],
    ["daily_limit_exceeded", never],
    ["deadline_exceeded", never],
    ["unauthorized", { "www-authenticate": "Bearer", ...never }],
    ["forbidden", never],
    ["key_disabled", never],
  ];
  for (const [code, headers] of codes) {
    assert.deepEqual(errorHeaders(new ApiError(code, "x")), headers, code);
  }
});

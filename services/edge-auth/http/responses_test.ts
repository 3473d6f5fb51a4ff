import assert from "node:assert/strict";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { errorHeaders } from "./responses.ts";

Deno.test("errorHeaders() says how long to wait, at least a second for those who round", () => {
  const rows: [waitMs: number, seconds: string, ms: string][] = [
    [0, "1", "1"],
    [0.2, "1", "1"],
    [999.1, "1", "1000"],
    [1_000, "1", "1000"],
    [1_000.1, "2", "1001"],
    [45_175, "46", "45175"],
    [86_400_000, "86400", "86400000"],
  ];
  for (const [retryAfterMs, seconds, ms] of rows) {
    const error = new ApiError("overloaded", "Busy", { retryAfterMs });
    assert.deepEqual(errorHeaders(error), {
      "retry-after": seconds,
      "retry-after-ms": ms,
    });
  }
});

Deno.test("errorHeaders() tells SDKs not to repeat what will not help", () => {
  const rows: [code: ErrorCode, shouldRetry: string | undefined][] = [
    ["invalid_value", undefined],
    ["request_timeout", undefined],
    ["rate_limit_exceeded", undefined],
    ["daily_limit_exceeded", "false"],
    ["service_unavailable", undefined],
    ["deadline_exceeded", "false"],
  ];
  for (const [code, shouldRetry] of rows) {
    const headers = errorHeaders(new ApiError(code, "x"));
    assert.equal(headers["x-should-retry"], shouldRetry, code);
    assert.equal(headers["retry-after"], undefined);
  }
});

import assert from "node:assert/strict";
import { newRequestId } from "@gateway/shared/process/ids";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { errorResponse, jsonResponse } from "./responses.ts";

const WAITS: [waitMs: number, seconds: string, ms: string][] = [
  [0, "1", "1"],
  [0.2, "1", "1"],
  [1, "1", "1"],
  [999.1, "1", "1000"],
  [1_000, "1", "1000"],
  [1_000.1, "2", "1001"],
  [45_175, "46", "45175"],
  [60_000, "60", "60000"],
  [86_400_000, "86400", "86400000"],
];

for (const [waitMs, seconds, ms] of WAITS) {
  Deno.test(`errorResponse() of a wait of ${waitMs} ms: Retry-After ${seconds}`, () => {
    const { headers } = errorResponse(
      new ApiError("overloaded", "Busy", { retryAfterMs: waitMs }),
      newRequestId(),
    );
    assert.equal(headers.get("retry-after"), seconds);
    assert.equal(headers.get("retry-after-ms"), ms);
  });
}

const RETRYING: [code: ErrorCode, shouldRetry: string | null][] = [
  ["invalid_value", null],
  ["request_timeout", null],
  ["rate_limit_exceeded", null],
  ["daily_limit_exceeded", "false"],
  ["service_unavailable", null],
  ["deadline_exceeded", "false"],
];

for (const [code, shouldRetry] of RETRYING) {
  Deno.test(`errorResponse() of ${code}: x-should-retry ${shouldRetry}`, () => {
    const { headers } = errorResponse(new ApiError(code, "x"), newRequestId());
    assert.equal(headers.get("x-should-retry"), shouldRetry);
    assert.equal(headers.get("retry-after"), null);
  });
}

Deno.test("jsonResponse() and errorResponse() say how many bytes they are", async () => {
  for (
    const response of [
      jsonResponse({ text: "naïve 𝄞" }, newRequestId()),
      errorResponse(new ApiError("not_found", "naïve 𝄞"), newRequestId()),
    ]
  ) {
    const said = response.headers.get("content-length");
    assert.equal(said, String((await response.bytes()).length));
  }
});

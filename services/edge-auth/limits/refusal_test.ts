import assert from "node:assert/strict";
import { UNAUTHORIZED_BODY } from "@gateway/shared/openai/error";
import type { Refusal } from "./limiter.ts";
import { refusalError } from "./refusal.ts";

const noChance = () => 0;
const RATES = { requests: null, tokens: null };
const limited = (
  limit: "requests" | "tokens" | "day" | "concurrency",
  waitMs: number,
): Refusal => ({
  isAdmitted: false,
  reason: "limited",
  limit,
  of: "key",
  waitMs,
  rates: RATES,
});

const TABLE: [name: string, refused: Refusal, status: number, code: string][] =
  [
    [
      "unknown",
      { isAdmitted: false, reason: "unknown" },
      401,
      "unauthorized",
    ],
    [
      "expired",
      { isAdmitted: false, reason: "expired" },
      401,
      "unauthorized",
    ],
    [
      "disabled",
      { isAdmitted: false, reason: "disabled" },
      403,
      "unauthorized",
    ],
    [
      "no right to the model",
      { isAdmitted: false, reason: "model" },
      403,
      "forbidden",
    ],
    ["requests", limited("requests", 100), 429, "rate_limit_exceeded"],
    ["tokens", limited("tokens", 100), 429, "rate_limit_exceeded"],
    ["day", limited("day", 100), 429, "rate_limit_exceeded"],
    ["concurrency", limited("concurrency", 100), 429, "rate_limit_exceeded"],
  ];

for (const [name, refused, status, code] of TABLE) {
  Deno.test(`refusalError() of ${name} is ${status} ${code}`, () => {
    const error = refusalError(refused, noChance);
    assert.equal(error.status, status);
    assert.equal(error.toBody().error.code, code);
    if (code === "unauthorized") {
      assert.deepEqual(error.toBody(), UNAUTHORIZED_BODY);
    }
  });
}

Deno.test("refusalError() says which limit, whose, and how long to wait", () => {
  const error = refusalError(limited("tokens", 45_175), noChance);
  assert.equal(
    error.message,
    "Limit of tokens per minute reached for this API key. " +
      "Please try again in 45.175s.",
  );
  assert.equal(error.retryAfterMs, 45_175);
  assert.equal(error.retryable, true);
  assert.equal(refusalError(limited("day", 5), noChance).retryable, false);
});

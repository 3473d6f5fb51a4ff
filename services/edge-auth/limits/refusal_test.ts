import assert from "node:assert/strict";
import { UNAUTHORIZED_BODY } from "@gateway/shared/openai/error";
import {
  goDuration,
  type LimitName,
  rateLimitHeaders,
  type Refusal,
  refusalError,
} from "./refusal.ts";

const RATES = { requests: null, tokens: null };
const limited = (limit: LimitName, waitMs = 100): Refusal => ({
  ...{ isAdmitted: false, reason: "limited", limit, of: "key", waitMs },
  rates: RATES,
});
const no = (reason: "unknown" | "expired" | "disabled" | "model"): Refusal => ({
  isAdmitted: false,
  reason,
});

const TABLE: [refused: Refusal, status: number, code: string][] = [
  [no("unknown"), 401, "unauthorized"],
  [no("expired"), 401, "unauthorized"],
  [no("disabled"), 403, "unauthorized"],
  [no("model"), 403, "forbidden"],
  [limited("requests"), 429, "rate_limit_exceeded"],
];

Deno.test("refusalError() by reason", () => {
  for (const [refused, status, code] of TABLE) {
    const error = refusalError(refused);
    assert.equal(error.status, status);
    assert.equal(error.toBody().error.code, code);
    if (code === "unauthorized") {
      assert.deepEqual(error.toBody(), UNAUTHORIZED_BODY);
    }
  }
});

Deno.test("refusalError() names the limit, whose it is, and how long to wait", () => {
  const error = refusalError(limited("tokens", 45_175));
  assert.equal(
    error.message,
    "Limit of tokens per minute reached for this API key. " +
      "Please try again in 45.175s.",
  );
  assert.equal(error.retryAfterMs, 45_175);
  assert.equal(error.retryable, true);
  assert.equal(refusalError(limited("day", 5)).retryable, false);
  const spoken = refusalError(limited("characters_per_day", 5));
  assert.match(spoken.message, /^Limit of characters per day reached/);
  assert.equal(spoken.retryable, false);
});

Deno.test("goDuration()", () => {
  const table: [ms: number, text: string][] = [
    [-5, "0s"],
    [0, "0s"],
    [0.2, "1ms"],
    [999, "999ms"],
    [999.5, "1s"],
    [1_500, "1.5s"],
    [59_999, "59.999s"],
    [60_000, "1m0s"],
    [3_599_999, "59m59.999s"],
    [3_600_000, "1h0m0s"],
    [86_400_001, "24h0m0.001s"],
  ];
  for (const [ms, text] of table) assert.equal(goDuration(ms), text);
});

Deno.test("rateLimitHeaders() returns OpenAI's six, without limits that are not set", () => {
  const requests = { limit: 600, remaining: 599, resetMs: 100 };
  const tokens = { limit: 150_000, remaining: 149_984, resetMs: 360_000 };
  const ofRequests = {
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "599",
    "x-ratelimit-reset-requests": "100ms",
  };
  const ofTokens = {
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-tokens": "6m0s",
  };
  const both = { ...ofRequests, ...ofTokens };
  assert.deepEqual(rateLimitHeaders({ requests, tokens }), both);
  assert.deepEqual(rateLimitHeaders({ ...RATES, tokens }), ofTokens);
  assert.deepEqual(rateLimitHeaders(RATES), {});
});

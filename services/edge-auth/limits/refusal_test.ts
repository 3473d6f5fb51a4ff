/** What callers are told about a refusal. */
import assert from "node:assert/strict";
import { UNAUTHORIZED_BODY } from "@gateway/shared/openai/error";
import * as refusal from "./refusal.ts";

const RATES = { requests: null, tokens: null };
const limited = (limit: refusal.LimitName, waitMs = 100) =>
  refusal.refusalError({
    isAdmitted: false,
    reason: "limited",
    limit,
    holder: "key",
    waitMs,
    rates: RATES,
  });

Deno.test("refusalError() names a limit, whose it is and how long to wait, but nothing of an unknown key", () => {
  const rows = [["unknown", 401], ["expired", 401], ["disabled", 403]] as const;
  for (const [reason, status] of rows) {
    const error = refusal.refusalError({ isAdmitted: false, reason });
    assert.equal(error.status, status);
    assert.deepEqual(error.toBody(), UNAUTHORIZED_BODY);
  }
  const error = limited("tokens", 45_175);
  assert.equal(
    error.message,
    "Limit of tokens per minute reached for this API key. " +
      "Please try again in 45.175s.",
  );
  assert.deepEqual([error.status, error.retryAfterMs], [429, 45_175]);
  assert.equal(error.retryable, true);
  assert.equal(limited("day").retryable, false);
  const spoken = limited("characters_per_day");
  assert.match(spoken.message, /^Limit of characters per day reached/);
  assert.equal(spoken.retryable, false);
});

Deno.test("a wait is told in units that people read, and that of a day with its end", () => {
  const waits = [
    { waitMs: 1, text: "0.001s" },
    { waitMs: 59_999, text: "59.999s" },
    { waitMs: 60_000, text: "1 min" },
    { waitMs: 60_001, text: "1 min 1 s" },
    { waitMs: 3_599_000, text: "59 min 59 s" },
    { waitMs: 3_599_001, text: "1 h" },
    { waitMs: 3_600_001, text: "1 h 1 min" },
    { waitMs: 71_782_288, text: "19 h 57 min" },
    { waitMs: 86_400_000, text: "24 h" },
  ];
  for (const { waitMs, text } of waits) {
    assert.equal(refusal.waitText(waitMs), text, String(waitMs));
  }
  assert.equal(
    limited("day", 71_760_000).message,
    "Limit of tokens per day reached for this API key. " +
      "Please try again in 19 h 56 min, at 00:00 UTC.",
  );
  assert.match(limited("images_per_day").message, /, at 00:00 UTC\.$/);
  assert.doesNotMatch(limited("requests").message, /UTC/);
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
  for (const [ms, text] of table) assert.equal(refusal.goDuration(ms), text);
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
  assert.deepEqual(refusal.rateLimitHeaders({ requests, tokens }), both);
  assert.deepEqual(refusal.rateLimitHeaders({ ...RATES, tokens }), ofTokens);
  assert.deepEqual(refusal.rateLimitHeaders(RATES), {});
});

import assert from "node:assert/strict";
import {
  goDuration,
  rateLimitHeaders,
  spreadWaitMs,
} from "./rate_limit_headers.ts";

const DURATIONS: [ms: number, text: string][] = [
  [-5, "0s"],
  [0, "0s"],
  [0.2, "1ms"],
  [12, "12ms"],
  [999, "999ms"],
  [999.5, "1s"],
  [1_000, "1s"],
  [1_500, "1.5s"],
  [8_640, "8.64s"],
  [59_999, "59.999s"],
  [60_000, "1m0s"],
  [360_000, "6m0s"],
  [3_599_999, "59m59.999s"],
  [3_600_000, "1h0m0s"],
  [5_400_000, "1h30m0s"],
  [86_400_001, "24h0m0.001s"],
];

for (const [ms, text] of DURATIONS) {
  Deno.test(`goDuration(${ms}) is ${text}`, () => {
    assert.equal(goDuration(ms), text);
  });
}

Deno.test("rateLimitHeaders() sends OpenAI's six and the IETF's two", () => {
  assert.deepEqual(
    rateLimitHeaders({
      requests: { limit: 600, remaining: 599, resetMs: 100 },
      tokens: { limit: 150_000, remaining: 149_984, resetMs: 360_000 },
    }),
    {
      "x-ratelimit-limit-requests": "600",
      "x-ratelimit-remaining-requests": "599",
      "x-ratelimit-reset-requests": "100ms",
      "x-ratelimit-limit-tokens": "150000",
      "x-ratelimit-remaining-tokens": "149984",
      "x-ratelimit-reset-tokens": "6m0s",
      "ratelimit-policy": '"rpm";q=600;w=60',
      "ratelimit": '"rpm";r=599;t=1',
    },
  );
});

Deno.test("rateLimitHeaders() is silent about limits that are off", () => {
  assert.deepEqual(rateLimitHeaders({ requests: null, tokens: null }), {});
  assert.deepEqual(
    Object.keys(
      rateLimitHeaders({
        requests: null,
        tokens: { limit: 1, remaining: 0, resetMs: 1 },
      }),
    ).filter((name) => name.includes("requests") || name === "ratelimit"),
    [],
  );
});

const MORE: [limit: number, remaining: number, resetMs: number, t: number][] = [
  [600, 600, 0, 0],
  [600, 599, 100, 1],
  [60, 0, 60_000, 1],
  [1, 0, 60_000, 60],
  [1, 0, 30_001, 31],
  [2, 0, 45_000, 15],
];

for (const [limit, remaining, resetMs, t] of MORE) {
  Deno.test(`RateLimit of ${remaining}/${limit}, whole in ${resetMs} ms: one more in ${t} s`, () => {
    const fields = rateLimitHeaders({
      requests: { limit, remaining, resetMs },
      tokens: null,
    });
    assert.equal(fields["ratelimit"], `"rpm";r=${remaining};t=${t}`);
  });
}

const WAITS: [waitMs: number, random: number, toldMs: number][] = [
  [0, 0.99, 0],
  [1_000, 0, 1_000],
  [1_000, 0.5, 1_050],
  [45_175, 0, 45_175],
  [54_545, 0.99, 59_944.955],
  [59_900, 0.99, 60_000],
  [60_000, 0.99, 60_000],
  [60_001, 0.5, 63_001.05],
  [600_000, 0.5, 630_000],
  [86_400_000, 0, 86_400_000],
  [86_400_000, 0.5, 86_430_000],
];

for (const [waitMs, random, toldMs] of WAITS) {
  Deno.test(`spreadWaitMs(${waitMs}) with chance ${random}: ${toldMs} ms`, () => {
    const spreadMs = spreadWaitMs(waitMs, () => random);
    assert.ok(Math.abs(spreadMs - toldMs) < 0.01, String(spreadMs));
  });
}

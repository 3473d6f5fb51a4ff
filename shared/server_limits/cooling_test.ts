/** How long a server or key rests, as its answers say. */
import assert from "node:assert/strict";
import { refusalWaitMs, usedUpMs } from "./cooling.ts";

const DATE = "Sat, 28 Nov 2026 12:00:00 GMT";

/** Headers of a refusal, and the wait that they ask for. */
const REFUSALS: readonly (readonly [
  fields: Record<string, string>,
  waitMs: number | null,
])[] = [
  [{}, null],
  [{ "retry-after": "7" }, 7_000],
  [{ "retry-after": "0.25" }, 250],
  [{ "retry-after-ms": "20", "retry-after": "7" }, 100],
  [{ "retry-after-ms": "1500", "retry-after": "7" }, 1_500],
  [{ "retry-after": "0" }, null],
  [{ "retry-after": "-5" }, null],
  [{ "retry-after": "soon" }, null],
  [{ "retry-after": "1e9" }, null],
  [{ "retry-after": "Infinity" }, null],
  [{ "retry-after": "31536000" }, 600_000],
  [{ "retry-after": "9".repeat(400) }, 600_000],
  [{ "retry-after": "Sat, 28 Nov 2026 12:00:30 GMT", date: DATE }, 30_000],
  [{ "retry-after": "Sat, 28 Nov 2026 11:00:00 GMT", date: DATE }, null],
  [{ "retry-after": "Sun, 28 Nov 2027 12:00:00 GMT", date: DATE }, 600_000],
  [{ "retry-after": "Sat, 28 Nov 2026 12:00:30 GMT" }, null],
  [
    {
      "retry-after": "0",
      "x-ratelimit-remaining-requests": "3",
      "x-ratelimit-reset-requests": "9s",
      "x-ratelimit-remaining-tokens": "0",
      "x-ratelimit-reset-tokens": "6m0s",
    },
    360_000,
  ],
];

Deno.test("refusalWaitMs() reads every form of a wait, within 0.1 s and 10 minutes", () => {
  for (const [fields, waitMs] of REFUSALS) {
    const read = refusalWaitMs(new Map(Object.entries(fields)));
    assert.equal(read, waitMs, JSON.stringify(fields));
  }
});

/** When a limit of which nothing remains is reset, and the wait. */
const RESETS: readonly (readonly [reset: string | null, waitMs: number])[] = [
  [null, 1_000],
  ["", 1_000],
  ["garbage", 1_000],
  ["-1", 1_000],
  ["0", 1_000],
  ["1s", 1_000],
  ["20ms", 100],
  ["120ms", 120],
  ["6m0s", 360_000],
  ["1m1.5s", 61_500],
  ["1h2m3s", 600_000],
  ["2.5", 2_500],
  [String(Date.parse(DATE) / 1_000 + 5), 5_000],
  [String(Date.parse(DATE) + 5_500), 5_500],
  [String(Date.parse(DATE) / 1_000 - 5), 1_000],
  ["2026-11-28T12:00:09Z", 9_000],
];

Deno.test("usedUpMs() waits for the reset of a limit of which nothing remains", () => {
  for (const [reset, waitMs] of RESETS) {
    for (
      const [remaining, name] of [
        ["x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"],
        [
          "anthropic-ratelimit-tokens-remaining",
          "anthropic-ratelimit-tokens-reset",
        ],
        ["ratelimit-remaining", "ratelimit-reset"],
      ] as const
    ) {
      const fields = new Map([[remaining, "0"], ["date", DATE]]);
      if (reset !== null) fields.set(name, reset);
      assert.equal(usedUpMs(fields), waitMs, `${name}: ${reset}`);
    }
  }
});

Deno.test("usedUpMs() is null while something remains, or nobody says what", () => {
  for (const remaining of ["1", "1000", "", "none", "-1"]) {
    const fields = new Map([["x-ratelimit-remaining-tokens", remaining]]);
    assert.equal(usedUpMs(fields), null, remaining);
  }
  assert.equal(usedUpMs(new Map([["content-type", "a"]])), null);
});

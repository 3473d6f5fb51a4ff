/** What a worker counts of a backend. */
import assert from "node:assert/strict";
import { BACKEND_LIMITS } from "./limits.ts";
import {
  FIRST_TOKEN_MS,
  percentilesOf,
  TOKENS_PER_SECOND,
} from "./log_histogram.ts";
import { BackendStatistics, BackendTable } from "./statistics.ts";

const MINUTE_MS = 60_000;
const STREAM = { durationMs: 2_100, firstTokenMs: 100, tokens: 101 };

function rig() {
  const clock = { nowMs: 17 * MINUTE_MS + 5 };
  const statistics = new BackendStatistics(() => clock.nowMs);
  return {
    clock,
    statistics,
    attempt(end: Parameters<BackendStatistics["end"]>[0]) {
      statistics.begin();
      statistics.end(end);
    },
  };
}

Deno.test("a backend that was never used has no hour and no error", () => {
  const { statistics } = rig();
  assert.equal(statistics.hour(), null);
  assert.equal(statistics.error, null);
});

Deno.test("attempts are in flight until they end", () => {
  const { statistics } = rig();
  statistics.begin();
  statistics.begin();
  assert.equal(statistics.inFlight, 2);
  statistics.end({ durationMs: 1 });
  assert.equal(statistics.inFlight, 1);
  assert.equal(statistics.hour()?.requests, 1);
});

Deno.test("an hour has what has ended in this minute and the 59 before", () => {
  const { statistics, attempt, clock } = rig();
  attempt({ durationMs: 1, failure: "down" });
  clock.nowMs += 59 * MINUTE_MS;
  attempt({ durationMs: 1 });
  assert.equal(statistics.hour()?.requests, 2);
  assert.equal(statistics.hour()?.failures, 1);
  clock.nowMs += MINUTE_MS;
  assert.equal(statistics.hour()?.requests, 1);
  assert.equal(statistics.hour()?.failures, 0);
  clock.nowMs += 59 * MINUTE_MS;
  assert.equal(statistics.hour(), null);
});

Deno.test("a minute of the ring forgets what it was about hours ago", () => {
  const { statistics, attempt, clock } = rig();
  for (let hour = 0; hour < 3; hour++) {
    attempt(STREAM);
    assert.equal(statistics.hour()?.requests, 1);
    clock.nowMs += 60 * MINUTE_MS;
  }
});

for (
  const { name, end, firstTokenMs, rate } of [
    {
      name: "a stream: the tokens after its first, in the time after it",
      end: STREAM,
      firstTokenMs: 100,
      rate: 50,
    },
    {
      name: "a whole answer: all tokens in all of the time",
      end: { durationMs: 2_000, tokens: 100 },
      firstTokenMs: null,
      rate: 50,
    },
    {
      name: "a stream of one token: no rate",
      end: { durationMs: 200, firstTokenMs: 100, tokens: 1 },
      firstTokenMs: 100,
      rate: null,
    },
    {
      name: "an answer in no time: no rate",
      end: { durationMs: 100, firstTokenMs: 100, tokens: 9 },
      firstTokenMs: 100,
      rate: null,
    },
    {
      name: "an answer without usage: no rate",
      end: { durationMs: 100 },
      firstTokenMs: null,
      rate: null,
    },
    {
      name: "an answer that broke off: no rate",
      end: { ...STREAM, failure: "cut" },
      firstTokenMs: 100,
      rate: null,
    },
  ]
) {
  Deno.test(`speed of ${name}`, () => {
    const { statistics, attempt } = rig();
    attempt(end);
    const hour = statistics.hour();
    assert.ok(hour !== null);
    for (
      const { counts, scale, exact } of [
        {
          counts: hour.firstTokens,
          scale: FIRST_TOKEN_MS,
          exact: firstTokenMs,
        },
        { counts: hour.rates, scale: TOKENS_PER_SECOND, exact: rate },
      ]
    ) {
      const shown = percentilesOf(counts, scale)?.p50 ?? null;
      if (exact === null || shown === null) assert.equal(shown, exact);
      else assert.ok(Math.abs(Math.log2(shown / exact)) < 0.5, `${shown}`);
    }
  });
}

Deno.test("the last error is kept for a day, and no longer than fits", () => {
  const { statistics, attempt, clock } = rig();
  attempt({ durationMs: 1, failure: "first" });
  attempt({ durationMs: 1, failure: "x".repeat(1_000) });
  attempt({ durationMs: 1 });
  clock.nowMs += 5_000;
  assert.equal(statistics.error?.text.length, BACKEND_LIMITS.errorCharsMax);
  assert.equal(statistics.error?.ageMs, 5_000);
  clock.nowMs += BACKEND_LIMITS.errorMs;
  assert.equal(statistics.error, null);
});

Deno.test("a text is never cut within a character", () => {
  const { statistics } = rig();
  statistics.note(`${"x".repeat(BACKEND_LIMITS.errorCharsMax - 1)}😀`);
  assert.ok(statistics.error?.text.isWellFormed());
});

Deno.test("a table keeps models apart whose servers have the same name", () => {
  const table = new BackendTable(() => 0);
  table.begin("a", "gpu");
  table.begin("b", "gpu");
  table.end("b", "gpu", { durationMs: 1 });
  assert.equal(table.get("a", "gpu")?.inFlight, 1);
  assert.equal(table.get("b", "gpu")?.inFlight, 0);
  assert.equal(table.get("c", "gpu"), undefined);
});

Deno.test("a table changes its revision with each beginning, end and note", () => {
  const table = new BackendTable(() => 0);
  const revisions = [
    () => table.begin("a", "gpu"),
    () => table.end("a", "gpu", { durationMs: 1 }),
    () => table.note("a", "gpu", "down"),
  ].map((change) => {
    change();
    return table.revision;
  });
  assert.equal(new Set([0, ...revisions]).size, 4);
});

Deno.test("a full table forgets what was not used for longest and runs nothing", () => {
  let nowMs = 0;
  const table = new BackendTable(() => nowMs);
  table.begin("running", "gpu");
  for (let n = 0; n < BACKEND_LIMITS.backendsMax; n++) {
    nowMs += 1;
    table.begin(`m${n}`, "gpu");
    table.end(`m${n}`, "gpu", { durationMs: 1 });
  }
  assert.ok(table.get("running", "gpu"));
  assert.equal(table.get("m0", "gpu"), undefined);
  assert.ok(table.get("m1", "gpu"));
});

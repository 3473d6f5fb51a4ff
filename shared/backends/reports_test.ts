/** Reports of several workers, added up. */
import assert from "node:assert/strict";
import { BACKEND_LIMITS } from "./limits.ts";
import { type BackendRowInput, decodeReport, encodeReports } from "./report.ts";
import { BackendReports } from "./reports.ts";

const ROW: BackendRowInput = {
  model: "m",
  backend: "gpu",
  preference: 0,
  weight: 1,
  state: "closed",
};
/** The cell of times from 113 to 160 ms, and of rates from 45 to 64. */
const [CELL_160_MS, CELL_64] = [8, 14];

function rig() {
  const clock = { nowMs: 1_000 };
  const reports = new BackendReports(() => clock.nowMs);
  return {
    clock,
    reports,
    tell(workerId: string, ...rows: Partial<BackendRowInput>[]) {
      const all = rows.map((row) => ({ ...ROW, ...row }));
      for (const message of encodeReports("chat", all)) {
        const report = decodeReport(message);
        assert.ok(report !== null);
        reports.take(workerId, report);
      }
    },
    only() {
      const [view, ...others] = reports.read();
      assert.ok(view !== undefined);
      assert.equal(others.length, 0);
      return view;
    },
  };
}

Deno.test("what several workers have seen of a backend is added up", () => {
  const { tell, only } = rig();
  tell("w1", {
    inFlight: 2,
    requests: 10,
    failures: 1,
    firstTokens: [[CELL_160_MS, 9]],
    rates: [[CELL_64, 9]],
  });
  tell("w2", {
    inFlight: 1,
    requests: 1,
    firstTokens: [[CELL_160_MS + 10, 1]],
  });
  const view = only();
  assert.equal(view.workers, 2);
  assert.equal(view.inFlight, 3);
  assert.equal(view.requests, 11);
  assert.equal(view.failures, 1);
  assert.ok(view.firstTokenMs !== null);
  assert.ok(view.firstTokenMs.p50 > 113 && view.firstTokenMs.p50 <= 160);
  assert.ok(view.firstTokenMs.p95 > 3_000);
  assert.ok(view.tokensPerSecond !== null);
  assert.ok(view.tokensPerSecond.p50 > 45 && view.tokensPerSecond.p50 <= 64);
});

Deno.test("the worst state that a worker has counts, and how many have it", () => {
  const { tell, only } = rig();
  tell("w1", { state: "closed" });
  tell("w2", { state: "open", openMs: 900, limitedMs: 100 });
  tell("w3", { state: "half-open" });
  const { state, stateWorkers, workers, openMs, limitedMs } = only();
  assert.deepEqual(
    { state, stateWorkers, workers, openMs, limitedMs },
    { state: "open", stateWorkers: 1, workers: 3, openMs: 900, limitedMs: 100 },
  );
});

Deno.test("the newest error of all workers is shown, and grows older", () => {
  const { tell, only, clock } = rig();
  tell("w1", { error: { text: "old", ageMs: 60_000 } });
  clock.nowMs += 1_000;
  tell("w2", { error: { text: "new", ageMs: 500 } });
  clock.nowMs += 1_000;
  assert.deepEqual(only().error, { text: "new", ageMs: 1_500 });
});

Deno.test("a wait that a worker has told runs out by itself", () => {
  const { tell, only, clock } = rig();
  tell("w1", { state: "open", openMs: 3_000 });
  clock.nowMs += 1_000;
  assert.equal(only().openMs, 2_000);
  clock.nowMs += 2_000;
  assert.equal(only().openMs, null);
});

Deno.test("a worker that is gone, and a row that is not repeated, count no more", () => {
  const { tell, reports, clock } = rig();
  tell("w1", { model: "a" }, { model: "b" });
  tell("w2", { model: "c" });
  reports.lost("w2");
  assert.deepEqual(reports.read().map(({ model }) => model), ["a", "b"]);
  clock.nowMs += BACKEND_LIMITS.rowMs - 1;
  tell("w1", { model: "b" });
  clock.nowMs += 1;
  assert.deepEqual(reports.read().map(({ model }) => model), ["b"]);
});

Deno.test("many rows go into messages that each fit the bus, and none is lost", () => {
  const { tell, reports } = rig();
  const error = { text: "☃".repeat(BACKEND_LIMITS.errorCharsMax), ageMs: 1 };
  const full = Array.from({ length: 32 }, (_, cell): [number, number] => [
    cell,
    4_000_000_000,
  ]);
  const rows = Array.from({ length: 250 }, (_, n) => ({
    ...ROW,
    model: `${"m".repeat(200)}${n}`,
    error,
    firstTokens: full,
    rates: full,
  }));
  const sizes = encodeReports("chat", rows).map(({ length }) => length);
  assert.equal(sizes.length, 3);
  assert.ok(Math.max(...sizes) < 512 * 1024, String(sizes));
  tell("w1", ...rows);
  assert.equal(reports.read().length, 250);
});

const hostile: readonly { name: string; text: string }[] = [
  { name: "no JSON", text: "{" },
  { name: "another version", text: '{"version":2,"family":"chat","rows":[]}' },
  { name: "an unknown family", text: '{"version":1,"family":"x","rows":[]}' },
  {
    name: "a negative count",
    text: JSON.stringify({
      version: 1,
      family: "chat",
      rows: [{ ...ROW, requests: -1 }],
    }),
  },
  {
    name: "a cell that does not exist",
    text: JSON.stringify({
      version: 1,
      family: "chat",
      rows: [{ ...ROW, rates: [[32, 1]] }],
    }),
  },
  {
    name: "an error that is too long",
    text: JSON.stringify({
      version: 1,
      family: "chat",
      rows: [{ ...ROW, error: { text: "x".repeat(301), ageMs: 0 } }],
    }),
  },
];

for (const { name, text } of hostile) {
  Deno.test(`a report with ${name} is not read`, () => {
    assert.equal(decodeReport(new TextEncoder().encode(text)), null);
  });
}

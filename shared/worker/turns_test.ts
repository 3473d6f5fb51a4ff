// Promise: slots that come free go to edges in proportion to the accounts that wait
// there, whoever frees them; none is kept for an edge that does not use it.
import assert from "node:assert/strict";
import type { EdgeWaiting, LaneWaiting } from "../bus/waiting.ts";
import type { TurnResult } from "./jobs/job_report.ts";
import { Turns } from "./turns.ts";

const KEPT_MS = 250;

/** Turns, and what they have told the edges since the last look. */
class Stage {
  nowMs = 0;
  /** Lanes that could not run here now. */
  readonly closed = new Set<string>();
  readonly counts: TurnResult[] = [];
  readonly turns = new Turns({
    now: () => this.nowMs,
    mayRun: (lane) => !this.closed.has(lane),
    tell: (edgeId, { slot }) => void this.#news.push(`${edgeId} ${slot}`),
    count: (result) => void this.counts.push(result),
  });
  readonly #news: string[] = [];

  /** An edge tells that requests of one lane wait. */
  beat(edgeId: string, waits: Partial<LaneWaiting> & { lane?: string }): void {
    this.turns.onBeat(edgeId, waiting(waits));
  }

  /** An edge frees a slot; returns what is told. */
  free(edgeId: string, requestId = "r"): string {
    this.turns.onSlotFree(edgeId, "m", requestId);
    return this.take();
  }

  take(): string {
    return this.#news.splice(0).join(", ");
  }
}

function waiting(
  { lane = "m", requests = 1, tokens = 10 * requests, ...rest }:
    & Partial<LaneWaiting>
    & { lane?: string },
): EdgeWaiting {
  const waits = { requests, tokens, weight: 1, oldestMs: 1_000, ...rest };
  return new Map([[lane, waits]]);
}

Deno.test("a slot stays with the edge that frees it while nobody else waits, or all wait briefly", () => {
  const t = new Stage();
  assert.equal(t.free("a"), "");
  t.beat("a", { requests: 5 });
  assert.equal(t.free("a"), "");
  const brief = new Stage();
  brief.beat("a", { requests: 5, oldestMs: 100 });
  brief.beat("b", { requests: 5, oldestMs: 499 });
  assert.equal(brief.free("a"), "");
  brief.beat("b", { requests: 5, oldestMs: 500 });
  assert.equal(brief.free("a"), "a passed, b kept");
  assert.equal(brief.free("a"), "");
});

Deno.test("an edge that frees no slot gets those of others, until it tells that nothing waits", () => {
  const t = new Stage();
  t.beat("b", { requests: 2 });
  assert.equal(t.free("a"), "a passed, b kept");
  assert.deepEqual([t.turns.kept, t.turns.keptBesides("a")], [1, 1]);
  assert.equal(t.turns.keptBesides("b"), 0);
  t.turns.onJob("a");
  assert.equal(t.turns.kept, 1);
  t.turns.onJob("b");
  t.turns.onJob("b");
  assert.equal(t.turns.kept, 0);
  assert.equal(t.free("a"), "a passed, b kept");
  t.turns.onBeat("b", new Map());
  assert.equal(t.free("a"), "");
  assert.equal(t.turns.kept, 1, "it may have sent a job meanwhile");
});

interface Share {
  name: string;
  edges: Record<string, Partial<LaneWaiting>>;
  /** Turns of each edge among 120. */
  turns: Record<string, number>;
}

const SHARES: readonly Share[] = [
  {
    name: "equally, however many requests wait",
    edges: { a: { requests: 1_000 }, b: { requests: 200 } },
    turns: { a: 60, b: 60 },
  },
  {
    name: "by the accounts that wait there",
    edges: {
      a: { requests: 1_000 },
      b: { requests: 1_000, weight: 2 },
      c: { requests: 1_000, weight: 3 },
    },
    turns: { a: 20, b: 40, c: 60 },
  },
  {
    name: "by what their requests ask for",
    edges: {
      a: { requests: 1_000, tokens: 30_000 },
      b: { requests: 1_000, tokens: 10_000 },
    },
    turns: { a: 30, b: 90 },
  },
];

for (const { name, edges, turns } of SHARES) {
  Deno.test(`slots are shared ${name}`, () => {
    const t = new Stage();
    for (const [id, waits] of Object.entries(edges)) t.beat(id, waits);
    const counts: Record<string, number> = {};
    for (let n = 0; n < 120; n += 1) {
      // Edge "a" frees all of them.
      const [, other = "a"] = /, (\w) kept/.exec(t.free("a")) ?? [];
      counts[other] = (counts[other] ?? 0) + 1;
      t.turns.onJob(other);
    }
    for (const [id, expected] of Object.entries(turns)) {
      const count = counts[id] ?? 0;
      assert.ok(Math.abs(count - expected) <= 1, `${id}: ${count}`);
    }
  });
}

Deno.test("what a request asks for counts, whatever those ask for that wait with it", () => {
  const t = new Stage();
  t.beat("a", { requests: 1_000 });
  t.beat("b", { requests: 1_000 });
  const tokens = new Map([["a", 0], ["b", 0]]);
  for (let n = 0; n < 300; n += 1) {
    const next = t.free("a") === "" ? "a" : "b";
    const amount = next === "a" ? 50 : 1 + n % 9;
    t.turns.onJob(next, amount);
    tokens.set(next, (tokens.get(next) ?? 0) + amount);
  }
  const [a = 0, b = 0] = [...tokens.values()];
  assert.ok(Math.abs(a - b) <= 100, `${a}, ${b}`);
});

Deno.test("a job that is rejected has had no turn", () => {
  const t = new Stage();
  t.beat("a", { requests: 1_000 });
  t.beat("b", { requests: 1_000 });
  let served = "";
  for (let n = 0; n < 12; n += 1) {
    const next = t.free("a") === "" ? "a" : "b";
    served += next;
    t.turns.onJob(next, 10);
    // One that came without a turn, to a worker that is full.
    t.turns.onRejectedJob("b", "full");
  }
  assert.match(served, /^(ab){6}$|^(ba){6}$/);
});

Deno.test("the first request at an edge is delayed by one turn of another, and an edge saves up none", () => {
  const t = new Stage();
  t.beat("a", { requests: 1_000 });
  for (let n = 0; n < 100; n += 1) assert.equal(t.free("a"), "");
  t.beat("b", { requests: 1_000, oldestMs: 0 });
  const turns = Array.from({ length: 6 }, () => t.free("a") === "" ? "a" : "b");
  assert.match(turns.join(""), /^a?(ba)+b?$/);
});

Deno.test("a slot that its edge returns goes to the next, then to anybody", () => {
  const t = new Stage();
  t.beat("b", { requests: 5 });
  t.beat("c", { requests: 5 });
  assert.equal(t.free("a"), "a passed, b kept");
  assert.equal(t.turns.onReturn("b"), true);
  assert.equal(t.take(), "c kept");
  assert.equal(t.turns.onReturn("c"), false);
  assert.equal(t.turns.kept, 0);
  // What they have told is outdated, until they tell again.
  assert.equal(t.free("a"), "");
  t.beat("c", {});
  assert.equal(t.free("a"), "a passed, c kept");
  // Nothing is kept for these.
  assert.equal(t.turns.onReturn("a"), true);
  assert.equal(t.turns.onReturn("nobody"), true);
  assert.deepEqual(t.counts, [
    "given",
    "returned",
    "given",
    "returned",
    "given",
  ]);
});

Deno.test("a slot that its edge does not use in time, or an edge that is lost, frees it", () => {
  const t = new Stage();
  t.beat("b", { requests: 5 });
  t.free("a");
  t.nowMs = KEPT_MS - 1;
  t.turns.onTick(1);
  assert.equal(t.turns.kept, 1);
  t.nowMs = KEPT_MS;
  t.turns.onTick(1);
  assert.equal(t.turns.kept, 0);
  assert.deepEqual(t.counts, ["given", "expired"]);
  t.beat("b", { requests: 5 });
  t.free("a");
  t.turns.onEdgeLost("b");
  t.turns.onEdgeLost("b");
  assert.equal(t.turns.kept, 0);
  assert.equal(t.free("a"), "");
});

Deno.test("a slot of its own is kept for an edge until its job comes, or until it has the end without one", () => {
  const t = new Stage();
  t.beat("a", { requests: 5 });
  t.beat("b", { requests: 5, oldestMs: 900 });
  assert.equal(t.free("a", "a1"), "");
  assert.deepEqual([t.turns.keptBesides("b"), t.turns.keptBesides("a")], [
    1,
    0,
  ]);
  // However many ticks its job takes on a busy machine.
  for (let n = 0; n < 5; n += 1) t.turns.onTick(1);
  assert.equal(t.take(), "");
  t.turns.onJob("a", 10);
  assert.equal(t.turns.kept, 0);
  // It has had its turn: that it has the end of the first says nothing any more.
  assert.equal(t.free("a", "a2"), "a passed, b kept");
  assert.equal(t.turns.onEndTaken("a", "a1"), true);
  assert.equal(t.turns.onEndTaken("a", "a2"), true);
  t.turns.onJob("b", 10);
  assert.equal(t.free("a", "a3"), "");
  assert.equal(t.turns.onEndTaken("a", "a3"), true);
  assert.equal(t.take(), "b kept");
  t.turns.onJob("b", 10);
  // What it has told is outdated, until it tells again.
  assert.equal(t.free("b", "b1"), "");
  t.turns.onJob("b", 10);
  t.beat("a", { requests: 5 });
  assert.equal(t.free("b", "b2"), "b passed, a kept");
});

Deno.test("a slot of its own that an edge does not need is free for all if nobody else waits", () => {
  const t = new Stage();
  t.beat("a", { requests: 5 });
  assert.equal(t.free("a", "a1"), "");
  assert.equal(t.turns.onEndTaken("a", "a1"), false);
  assert.equal(t.turns.kept, 0);
  t.beat("a", { requests: 5 });
  assert.equal(t.free("a", "a2"), "");
  t.nowMs = KEPT_MS;
  t.turns.onTick(1);
  assert.equal(t.turns.kept, 0, "an edge that is silent has it for a moment");
  assert.deepEqual(t.counts, ["expired"]);
});

Deno.test("a slot stays with the edge whose job came while the worker stood still", () => {
  const t = new Stage();
  t.beat("a", { requests: 5 });
  t.beat("b", { requests: 5, oldestMs: 900 });
  assert.equal(t.free("a", "a1"), "");
  t.nowMs = KEPT_MS;
  t.turns.onRejectedJob("a", "stale");
  assert.equal(t.turns.onEndTaken("a", "a1"), true);
  t.turns.onTick(1);
  assert.deepEqual([t.turns.keptBesides("b"), t.take()], [1, ""]);
  t.turns.onJob("a", 10);
  assert.equal(t.turns.kept, 0);
});

Deno.test("a turn counts once, whatever its edge tells before its job comes", () => {
  const t = new Stage();
  t.beat("a", { requests: 1_000 });
  t.beat("b", { requests: 1_000 });
  let served = "";
  for (let n = 0; n < 12; n += 1) {
    const next = t.free("a", `a${n}`) === "" ? "a" : "b";
    served += next;
    if (next === "b") t.beat("b", { requests: 1_000 });
    t.turns.onJob(next, 10);
  }
  assert.match(served, /^(ab){6}$|^(ba){6}$/);
});

Deno.test("of edges that are even, the one whose request is older is first, whichever told last", () => {
  const t = new Stage();
  t.beat("b", { oldestMs: 900 });
  t.nowMs = 200;
  t.beat("a", { oldestMs: 1_000 });
  assert.equal(t.free("a"), "a passed, b kept");
});

Deno.test("a slot that nobody has used for a tick is kept for the next edge", () => {
  const t = new Stage();
  t.beat("b", { requests: 5 });
  t.turns.onTick(1);
  assert.equal(t.take(), "");
  t.turns.onTick(1);
  assert.equal(t.take(), "b kept");
  // It is kept already.
  t.turns.onTick(1);
  assert.equal(t.take(), "");
  t.turns.onTick(2);
  t.turns.onTick(2);
  assert.equal(t.take(), "b kept");
});

Deno.test("a request whose model is at limits here, or is not here, has no turn", () => {
  const t = new Stage();
  t.closed.add("other");
  t.beat("b", { lane: "other", requests: 5 });
  assert.equal(t.free("a"), "");
  t.closed.clear();
  assert.equal(t.free("a"), "a passed, b kept");
});

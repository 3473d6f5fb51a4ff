import assert from "node:assert/strict";
import { type BreakerState, CircuitBreaker } from "./breaker.ts";
import type { AttemptResult } from "./errors.ts";

interface Rig {
  breaker: CircuitBreaker;
  /** Lets the clock go on. */
  wait(ms: number): void;
  /** Enters and reports at once. */
  attempt(result: AttemptResult): void;
}

function rig(): Rig {
  let nowMs = 1_000;
  const breaker = new CircuitBreaker(() => nowMs);
  return {
    breaker,
    wait: (ms) => void (nowMs += ms),
    attempt(result) {
      const permit = breaker.enter();
      assert.ok(permit, "refused");
      permit.report(result);
    },
  };
}

function repeat(result: AttemptResult, times: number): AttemptResult[] {
  return new Array<AttemptResult>(times).fill(result);
}

/** A failure after every success: never two in a row. */
function alternate(pairs: number): AttemptResult[] {
  return Array.from({ length: pairs }, () => ["failure", "success"] as const)
    .flat();
}

const sequences: {
  name: string;
  results: AttemptResult[];
  state: BreakerState;
}[] = [
  { name: "nothing", results: [], state: "closed" },
  {
    name: "four failures in a row",
    results: repeat("failure", 4),
    state: "closed",
  },
  {
    name: "five failures in a row",
    results: repeat("failure", 5),
    state: "open",
  },
  {
    name: "four failures, a success, four failures",
    results: [...repeat("failure", 4), "success", ...repeat("failure", 4)],
    state: "closed",
  },
  {
    name: "five failures with what says nothing in between",
    results: [...repeat("failure", 4), ...repeat("ignored", 9), "failure"],
    state: "open",
  },
  {
    name: "any number of aborts",
    results: repeat("ignored", 1_000),
    state: "closed",
  },
  {
    name: "four failures with no room in between",
    results: [...repeat("failure", 4), ...repeat("overloaded", 9)],
    state: "closed",
  },
  {
    name: "no room for 19",
    results: repeat("overloaded", 19),
    state: "closed",
  },
  { name: "no room for 20", results: repeat("overloaded", 20), state: "open" },
  {
    name: "no room for 19 of 20",
    results: ["success", ...repeat("overloaded", 19)],
    state: "closed",
  },
  {
    name: "no room for 16, and four failures",
    results: [...repeat("overloaded", 16), ...repeat("failure", 4)],
    state: "open",
  },
  { name: "half of 18 failing", results: alternate(9), state: "closed" },
  {
    name: "half of 20 failing",
    results: ["success", ...alternate(9), "failure"],
    state: "open",
  },
  {
    name: "less than half of 21 failing",
    results: ["success", "success", "success", ...alternate(9)],
    state: "closed",
  },
];

for (const { name, results, state } of sequences) {
  Deno.test(`CircuitBreaker is ${state} after ${name}`, () => {
    const { breaker, attempt } = rig();
    for (const result of results) attempt(result);
    assert.equal(breaker.state, state);
    assert.equal(breaker.enter() === null, state === "open");
  });
}

Deno.test("CircuitBreaker lets one probe through when its time is over", () => {
  const { breaker, attempt, wait } = rig();
  for (const result of repeat("failure", 5)) attempt(result);
  assert.equal(breaker.waitMs, 1_000);
  wait(999);
  assert.equal(breaker.enter(), null);
  assert.equal(breaker.waitMs, 1);
  wait(1);
  assert.equal(breaker.waitMs, 0);
  const probe = breaker.enter();
  assert.equal(breaker.state, "half-open");
  assert.equal(breaker.enter(), null);
  wait(60_000);
  assert.equal(breaker.enter(), null);
  probe?.report("success");
  assert.equal(breaker.state, "closed");
  attempt("success");
});

Deno.test("CircuitBreaker stays open twice as long with each probe that fails, up to a bound, and starts anew after a success", () => {
  const { breaker, attempt, wait } = rig();
  for (const result of repeat("failure", 5)) attempt(result);
  for (const openMs of [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
    assert.equal(breaker.waitMs, openMs);
    wait(openMs);
    attempt("failure");
    assert.equal(breaker.state, "open");
  }
  wait(30_000);
  attempt("success");
  for (const result of repeat("failure", 5)) attempt(result);
  assert.equal(breaker.waitMs, 1_000);
});

Deno.test("CircuitBreaker waits no longer after a probe that found no room", () => {
  const { breaker, attempt, wait } = rig();
  for (const result of repeat("overloaded", 20)) attempt(result);
  for (let i = 0; i < 3; i++) {
    assert.equal(breaker.waitMs, 1_000);
    wait(1_000);
    attempt("overloaded");
    assert.equal(breaker.state, "open");
  }
  wait(1_000);
  attempt("success");
  for (const result of repeat("overloaded", 19)) attempt(result);
  assert.equal(breaker.state, "closed");
});

Deno.test("CircuitBreaker sends another probe at once when one was given up", () => {
  const { breaker, attempt, wait } = rig();
  for (const result of repeat("failure", 5)) attempt(result);
  wait(1_000);
  attempt("ignored");
  assert.equal(breaker.state, "half-open");
  attempt("success");
  assert.equal(breaker.state, "closed");
});

Deno.test("CircuitBreaker is not moved by reports of attempts from before it opened", () => {
  const { breaker, attempt, wait } = rig();
  const early = [breaker.enter(), breaker.enter()];
  for (const result of repeat("failure", 5)) attempt(result);
  early[0]?.report("success");
  assert.equal(breaker.state, "open");
  wait(1_000);
  const probe = breaker.enter();
  early[1]?.report("failure");
  assert.equal(breaker.state, "half-open");
  probe?.report("success");
  early[1]?.report("failure");
  assert.equal(breaker.state, "closed");
});

Deno.test("CircuitBreaker tries the next once a probe has begun, and believes the first that ends", () => {
  const { breaker, wait, attempt } = rig();
  for (const result of repeat("failure", 5)) attempt(result);
  wait(1_000);
  const long = breaker.enter();
  assert.equal(breaker.enter(), null);
  long?.begun();
  const next = breaker.enter();
  assert.equal(breaker.state, "half-open");
  next?.begun();
  next?.report("failure");
  assert.equal(breaker.state, "open");
  long?.report("success");
  assert.equal(breaker.state, "open");
});

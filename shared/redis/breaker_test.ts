import assert from "node:assert/strict";
import { createBreaker } from "./breaker.ts";

const TABLE: { name: string; failuresAtMs: number[]; opens: boolean }[] = [
  {
    name: "five within the window",
    failuresAtMs: [0, 300, 600, 900, 990],
    opens: true,
  },
  {
    name: "five at its very edge",
    failuresAtMs: [0, 300, 600, 900, 1000],
    opens: true,
  },
  {
    name: "five just beyond it",
    failuresAtMs: [0, 300, 600, 900, 1001],
    opens: false,
  },
  { name: "four", failuresAtMs: [0, 1, 2, 3], opens: false },
  {
    name: "the last five of six",
    failuresAtMs: [0, 1100, 1200, 1300, 1400, 1500],
    opens: true,
  },
];

for (const { name, failuresAtMs, opens } of TABLE) {
  Deno.test(`breaker ${opens ? "opens" : "stays closed"}: ${name}`, () => {
    let nowMs = 0;
    const breaker = createBreaker({
      now: () => nowMs,
      failuresMax: 5,
      windowMs: 1000,
    });
    const opened = failuresAtMs.map((atMs) => {
      nowMs = atMs;
      return breaker.failed();
    });
    assert.equal(breaker.isOpen, opens);
    assert.equal(opened.at(-1), opens);
    assert.equal(opened.filter((x) => x).length, opens ? 1 : 0);
  });
}

Deno.test("breaker forgets failures at a success and closes at one", () => {
  const breaker = createBreaker({
    now: () => 0,
    failuresMax: 2,
    windowMs: 1000,
  });
  breaker.failed();
  assert.equal(breaker.succeeded(), false);
  breaker.failed();
  assert.equal(breaker.isOpen, false);
  assert.equal(breaker.failed(), true);
  assert.equal(breaker.failed(), false, "already open");
  assert.equal(breaker.succeeded(), true);
  assert.equal(breaker.isOpen, false);
  assert.equal(breaker.failed(), false, "counts from zero again");
});

import assert from "node:assert/strict";
import { createBodyBudget } from "./body_budget.ts";

function setup() {
  const budget = createBodyBudget({ processBytesMax: 100, keyBytesMax: 60 });
  const refused: string[] = [];
  const hold = (name: string, keyId = name) => {
    const held = budget.hold(keyId, (error) => {
      refused.push(`${name} ${error.status}`);
      held.release();
    });
    return held;
  };
  return { budget, refused, hold };
}

Deno.test("a body budget refuses what a key holds beyond its share, and nobody else's", () => {
  const { budget, refused, hold } = setup();
  const [first, second] = [hold("first", "a"), hold("second", "a")];
  assert.equal(first.grow(40), null);
  assert.equal(second.grow(20), null);
  assert.equal(second.grow(21)?.status, 429);
  assert.equal(hold("other").grow(40), null);
  first.release();
  assert.equal(second.grow(60), null);
  assert.equal(budget.bytes, 100);
  assert.deepEqual(refused, []);
});

Deno.test("a full body budget refuses the oldest body that is not whole", () => {
  const { budget, refused, hold } = setup();
  const [whole, slow, next] = [hold("whole"), hold("slow"), hold("next")];
  assert.equal(whole.grow(30), null);
  whole.isWhole = true;
  assert.equal(slow.grow(30), null);
  assert.equal(next.grow(40), null);
  assert.equal(hold("newest").grow(20), null);
  assert.deepEqual(refused, ["slow 503"]);
  assert.equal(budget.bytes, 90);
  // The oldest that is left asks for more itself.
  const error = next.grow(60);
  assert.equal(error?.status, 503);
  assert.equal(error?.retryAfterMs, 1_000);
});

/** How the memory for request bodies is shared among keys. */
import assert from "node:assert/strict";
import { BodyBudget, BodyShare } from "./body_budget.ts";

const BOUNDS = { bodiesBytesMax: 90, bodyBytesMax: 20 };

/** A body of a key, which fails the test if it is refused later. */
function shareOf(budget: BodyBudget, keyId: string): BodyShare {
  return new BodyShare(budget, {
    keyId,
    refuse: (error) => assert.fail(error),
  });
}

Deno.test("a key that is alone holds two thirds of the memory, one of several a third", () => {
  const budget = new BodyBudget(BOUNDS);
  const large = shareOf(budget, "key_a");
  assert.equal(budget.grow(large, 60), null);
  assert.equal(budget.grow(large, 1)?.status, 429);
  // What is left is enough for the share of any other.
  const other = shareOf(budget, "key_b");
  assert.equal(budget.grow(other, 30), null);
  assert.equal(budget.grow(other, 1)?.status, 429);
  large.resize(30);
  assert.equal(budget.grow(large, 1)?.status, 429);
  other.release();
  assert.equal(budget.grow(large, 30), null);
  large.release();
  assert.equal(budget.bytes, 0);
});

Deno.test("bodies that can be done without make room, those of the same key first", () => {
  const budget = new BodyBudget(BOUNDS);
  const spares = ["key_a", "key_a", "key_b"].map((keyId) => {
    const share = shareOf(budget, keyId);
    assert.equal(budget.grow(share, 15), null);
    share.spare(() => share.release());
    return share;
  });
  const more = shareOf(budget, "key_a");
  assert.equal(budget.grow(more, 15), null);
  assert.deepEqual(spares.map(({ bytes }) => bytes), [0, 15, 15]);
});

import assert from "node:assert/strict";
import { createRefusedBodies } from "./refused_bodies.ts";

Deno.test("a key spends 50 ms on refused bodies at once, then 25 ms a second, and others are not affected", () => {
  let nowMs = 1_000_000;
  const refused = createRefusedBodies(() => nowMs);
  refused.charge("a", 20);
  refused.charge("a", 30);
  assert.equal(refused.waitMs("a"), 0);
  refused.charge("a", 40);
  assert.equal(refused.waitMs("a"), 1_600);
  assert.equal(refused.waitMs("b"), 0);
  nowMs += 1_599;
  assert.equal(refused.waitMs("a"), 1);
  nowMs += 1;
  assert.equal(refused.waitMs("a"), 0);
  nowMs += 60_000;
  refused.charge("a", 50);
  assert.equal(refused.waitMs("a"), 0, "a pause saves up no more than that");
  refused.charge("a", 1);
  assert.equal(refused.waitMs("a"), 40);
});

// Promise: an edge is lost when it is silent for too long, and never because we
// were deaf, asleep or cut off.
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { EdgeLiveness } from "./edge_liveness.ts";

const { edgeLostMs } = DISPATCH_LIMITS;

/** A worker that has just heard edge `e`. */
function setup() {
  const clock = { ms: 5_000 };
  const edges = new EdgeLiveness(() => clock.ms);
  edges.onHeard("e");
  return { edges, pass: (ms: number) => void (clock.ms += ms) };
}

Deno.test("an edge is lost at the bound of its silence, once", () => {
  const { edges, pass } = setup();
  pass(edgeLostMs - 1);
  assert.deepEqual(edges.takeLost(false), []);
  pass(1);
  assert.deepEqual(edges.takeLost(false), ["e"]);
  assert.deepEqual(edges.takeLost(false), []);
});

Deno.test("an edge that is heard is not lost", () => {
  const { edges, pass } = setup();
  for (let beats = 0; beats < 10; beats += 1) {
    pass(edgeLostMs - 1);
    edges.onHeard("e");
    assert.deepEqual(edges.takeLost(false), []);
  }
});

Deno.test("every edge is lost when the bus is gone", () => {
  const { edges } = setup();
  edges.onHeard("f");
  assert.deepEqual(edges.takeLost(true), ["e", "f"]);
});

Deno.test("when the bus is back every silence begins anew", () => {
  const { edges, pass } = setup();
  pass(10 * edgeLostMs);
  edges.forgiveSilence();
  pass(edgeLostMs - 1);
  assert.deepEqual(edges.takeLost(false), []);
  pass(1);
  assert.deepEqual(edges.takeLost(false), ["e"]);
});

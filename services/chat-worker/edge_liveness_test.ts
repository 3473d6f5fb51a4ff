// Promise: an edge is lost when it is silent for too long, and never because we
// were deaf, asleep or cut off.
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { EdgeLiveness } from "./edge_liveness.ts";

const { deafMs, edgeLostMs } = DISPATCH_LIMITS;
const BUS_LOST_MS = 10_000;

/** A worker that has just heard edge `e`, and whose own beats come back while time passes. */
function setup() {
  const clock = { ms: 5_000 };
  const edges = new EdgeLiveness({
    now: () => clock.ms,
    busLostMs: BUS_LOST_MS,
  });
  edges.onHeard("e");
  const pass = (ms: number, { isDeaf = false } = {}) => {
    clock.ms += ms;
    if (!isDeaf) edges.onOwnBeat();
  };
  return { edges, pass };
}

Deno.test("an edge is lost at the bound of its silence, once", () => {
  const { edges, pass } = setup();
  pass(edgeLostMs - 1);
  assert.deepEqual(edges.takeLost(), []);
  pass(1);
  assert.deepEqual(edges.takeLost(), ["e"]);
  assert.deepEqual(edges.takeLost(), []);
});

Deno.test("an edge that is heard is not lost", () => {
  const { edges, pass } = setup();
  for (let beats = 0; beats < 10; beats += 1) {
    pass(edgeLostMs - 1);
    edges.onHeard("e");
    assert.deepEqual(edges.takeLost(), []);
  }
});

Deno.test("no edge is lost while we do not hear ourselves, and its silence begins anew after", () => {
  const { edges, pass } = setup();
  pass(deafMs, { isDeaf: true });
  assert.deepEqual(edges.takeLost(), []);
  pass(edgeLostMs, { isDeaf: true });
  assert.deepEqual(edges.takeLost(), []);
  pass(0);
  assert.deepEqual(edges.takeLost(), []);
  pass(edgeLostMs - 1);
  assert.deepEqual(edges.takeLost(), []);
  pass(1);
  assert.deepEqual(edges.takeLost(), ["e"]);
});

Deno.test("without the bus no edge is lost until it is away for too long, then all are", () => {
  const { edges, pass } = setup();
  edges.onHeard("f");
  edges.onDisconnect();
  pass(BUS_LOST_MS - 1);
  assert.deepEqual(edges.takeLost(), []);
  pass(1);
  assert.deepEqual(edges.takeLost(), ["e", "f"]);
});

Deno.test("when the bus is back every silence begins anew", () => {
  const { edges, pass } = setup();
  edges.onDisconnect();
  pass(BUS_LOST_MS - 1);
  edges.onReconnect();
  pass(edgeLostMs - 1);
  assert.deepEqual(edges.takeLost(), []);
  pass(1);
  assert.deepEqual(edges.takeLost(), ["e"]);
});

/** What edges and workers tell each other of requests that wait. */
import assert from "node:assert/strict";
import { encodeJson } from "./stream/frame.ts";
import {
  decodeEdgeBeat,
  decodeReturn,
  decodeTurn,
  encodeEdgeBeat,
  encodeReturn,
  encodeTurn,
} from "./waiting.ts";

const WAITS = { requests: 3, tokens: 300, weight: 2, oldestMs: 1_200.5 };

Deno.test("a beat tells what waits, and is empty while nothing does", () => {
  assert.equal(encodeEdgeBeat(new Map()).length, 0);
  assert.equal(decodeEdgeBeat(new Uint8Array(0)).size, 0);
  const waiting = new Map([["m", WAITS], ["chat uploads", WAITS]]);
  assert.deepEqual(decodeEdgeBeat(encodeEdgeBeat(waiting)), waiting);
});

Deno.test("a beat tells of the hundred lanes in which most waits", () => {
  const waiting = new Map(
    Array.from(
      { length: 150 },
      (_, n) => [`m${n}`, { ...WAITS, requests: n + 1 }] as const,
    ),
  );
  const lanes = decodeEdgeBeat(encodeEdgeBeat(waiting));
  assert.equal(lanes.size, 100);
  assert.ok(lanes.has("m149") && lanes.has("m50") && !lanes.has("m49"));
});

Deno.test("beats and turns that cannot be read say nothing", () => {
  const malformed = [
    "x",
    encodeJson({}),
    encodeJson({ waiting: { m: { ...WAITS, requests: 0 } } }),
    encodeJson({ waiting: { m: { ...WAITS, weight: 0 } } }),
    encodeJson({ worker: "w1", model: null, slot: "stolen" }),
    encodeJson({ edge: 1 }),
  ].map((each) => typeof each === "string" ? Uint8Array.of(120) : each);
  for (const bytes of malformed) {
    assert.equal(decodeEdgeBeat(bytes).size, 0);
    assert.equal(decodeTurn(bytes), null);
    assert.equal(decodeReturn(bytes), null);
  }
});

Deno.test("turns and returns arrive as they were sent", () => {
  for (const model of ["m", null]) {
    for (const slot of ["kept", "passed"] as const) {
      const turn = { worker: "w1", model, slot };
      assert.deepEqual(decodeTurn(encodeTurn(turn)), turn);
    }
  }
  assert.equal(decodeReturn(encodeReturn("e1")), "e1");
});

/** What the console knows of requests that wait at edges. */
import assert from "node:assert/strict";
import { encodeEdgeBeat } from "@gateway/shared/bus/waiting";
import { WaitingRequests } from "./waiting_requests.ts";

const beatOf = (requests: number, oldestMs: number, lane = "m") =>
  encodeEdgeBeat(
    new Map([[lane, { requests, tokens: 1, weight: 1, oldestMs }]]),
  );

Deno.test("what waits for a model is added up over edges, until they tell otherwise or are silent", () => {
  let nowMs = 0;
  const waiting = new WaitingRequests(() => nowMs);
  assert.equal(waiting.read().size, 0);
  waiting.onBeat("e1", beatOf(2, 3_000));
  nowMs = 500;
  waiting.onBeat("e2", beatOf(5, 100));
  waiting.onBeat("e3", beatOf(1, 0, "other"));
  assert.deepEqual([...waiting.read()], [
    ["m", { requests: 7, oldestMs: 3_500 }],
    ["other", { requests: 1, oldestMs: 0 }],
  ]);
  waiting.onBeat("e3", new Uint8Array(0));
  nowMs = 2_999;
  assert.equal(waiting.read().get("m")?.requests, 7);
  nowMs = 3_000;
  assert.deepEqual([...waiting.read()], [
    ["m", { requests: 5, oldestMs: 2_600 }],
  ]);
  nowMs = 10_000;
  assert.equal(waiting.read().size, 0);
});

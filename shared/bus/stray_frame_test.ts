import assert from "node:assert/strict";
import { type Frame, FrameType } from "./frame.ts";
import { encodeAccept, encodeEnd } from "./frame_payload.ts";
import { strayFrameAnswer } from "./stray_frame.ts";

const named = encodeAccept("w1");

function frameOf(type: FrameType, payload: Uint8Array): Frame {
  return { type, sequence: 9, attempt: 4, tokens: 0, payload };
}

Deno.test("strayFrameAnswer() acknowledges the end of a stream nobody follows", () => {
  const end = encodeEnd("w1", { usage: null, finishReasons: [] });
  const answer = { type: "ack", workerId: "w1", attempt: 4, sequence: 9 };
  assert.deepEqual(strayFrameAnswer(frameOf(FrameType.END, end)), answer);
  assert.deepEqual(strayFrameAnswer(frameOf(FrameType.ERR, named)), answer);
});

Deno.test("strayFrameAnswer() cancels a stream that still runs", () => {
  const answer = { type: "cancel", workerId: "w1", attempt: 4 };
  for (const type of [FrameType.ACCEPT, FrameType.BEAT]) {
    assert.deepEqual(strayFrameAnswer(frameOf(type, named)), answer);
  }
});

Deno.test("strayFrameAnswer() has no answer without a worker to send it to", () => {
  const nothing = new Uint8Array(0);
  const table: [name: string, frame: Frame][] = [
    ["DATA", frameOf(FrameType.DATA, named)],
    ["REJECT", frameOf(FrameType.REJECT, named)],
    ["a broken END", frameOf(FrameType.END, nothing)],
    ["a broken BEAT", frameOf(FrameType.BEAT, nothing)],
  ];
  for (const [name, frame] of table) {
    assert.equal(strayFrameAnswer(frame), null, name);
  }
});

import assert from "node:assert/strict";
import { STREAM_LIMITS } from "../limits.ts";
import { decodeFrame, FRAME_HEADER_BYTES, FrameType } from "./frame.ts";
import { ReplayBuffer } from "./replay_buffer.ts";

const LIMITS = {
  ...STREAM_LIMITS,
  windowBytes: 100,
  framePayloadBytesMax: 40,
};

const payloadOf = (bytes: number): Uint8Array => new Uint8Array(bytes).fill(7);

function takeAll(buffer: ReplayBuffer): [number, number, number][] {
  const taken: [number, number, number][] = [];
  for (;;) {
    const bytes = buffer.take();
    if (bytes === undefined) return taken;
    const frame = decodeFrame(bytes);
    assert(typeof frame === "object");
    taken.push([frame.sequence, frame.payload.length, frame.tokens]);
  }
}

Deno.test("ReplayBuffer cuts at framePayloadBytesMax and counts tokens with the last piece", () => {
  const table: [bytes: number, frames: [number, number, number][]][] = [
    [39, [[1, 39, 5]]],
    [40, [[1, 40, 5]]],
    [41, [[1, 40, 0], [2, 1, 5]]],
  ];
  for (const [bytes, frames] of table) {
    const buffer = new ReplayBuffer(1, LIMITS);
    buffer.write(payloadOf(bytes), 5);
    assert.deepEqual(takeAll(buffer), frames, `${bytes}`);
  }
});

Deno.test("ReplayBuffer never holds more frames than its window", () => {
  const table: [bytes: number, hasRoom: boolean, isWaiting: boolean][] = [
    [27, true, false],
    [28, false, false],
    [29, false, true],
  ];
  for (const [bytes, hasRoom, isWaiting] of table) {
    const buffer = new ReplayBuffer(1, LIMITS);
    buffer.write(payloadOf(40), 1);
    buffer.write(payloadOf(bytes), 2);
    assert.equal(buffer.hasRoom, hasRoom, `${bytes}`);
    assert.equal(buffer.isWaiting, isWaiting, `${bytes}`);
    assert.equal(takeAll(buffer).length, isWaiting ? 1 : 2);
  }
});

Deno.test("what waits keeps its order and follows as room comes", () => {
  const buffer = new ReplayBuffer(1, LIMITS);
  buffer.write(payloadOf(130), 1);
  buffer.write(payloadOf(3), 2);
  buffer.close(FrameType.END, payloadOf(200), 2);
  assert.deepEqual(takeAll(buffer), [[1, 40, 0]]);
  assert.equal(buffer.bytes, FRAME_HEADER_BYTES + 130 + 3 + 200);
  buffer.dropThrough(1);
  assert.deepEqual(takeAll(buffer), [[2, 40, 0]]);
  buffer.dropThrough(2);
  assert.deepEqual(takeAll(buffer), [[3, 40, 0], [4, 10, 1]]);
  buffer.dropThrough(3);
  assert.deepEqual(takeAll(buffer), [[5, 3, 2], [6, 200, 2]]);
  assert.equal(buffer.isEmpty, false);
  buffer.dropThrough(6);
  assert.equal(buffer.isEmpty, true);
  assert.equal(buffer.bytes, 0);
});

Deno.test("ReplayBuffer copies what it is given, waiting or not", () => {
  const buffer = new ReplayBuffer(1, LIMITS);
  for (let i = 0; i < 2; i++) {
    const payload = payloadOf(80);
    buffer.write(payload, 1);
    payload.fill(0);
  }
  let bytes = 0;
  for (let i = 1; i <= 4; i++) {
    const frame = decodeFrame(buffer.take() ?? new Uint8Array(0));
    assert(typeof frame === "object");
    assert(frame.payload.every((byte) => byte === 7));
    bytes += frame.payload.length;
    buffer.dropThrough(i);
  }
  assert.equal(bytes, 160);
});

Deno.test("rewind() sends the same frames again", () => {
  const buffer = new ReplayBuffer(1, LIMITS);
  for (let i = 1; i <= 4; i++) buffer.write(payloadOf(i), i);
  assert.equal(takeAll(buffer).length, 4);
  buffer.rewind(3);
  assert.equal(buffer.isCaughtUp, false);
  assert.deepEqual(takeAll(buffer), [[3, 3, 3], [4, 4, 4]]);
});

Deno.test("an acknowledgement of what is about to be sent again moves the cursor", () => {
  const buffer = new ReplayBuffer(1, LIMITS);
  for (let i = 1; i <= 4; i++) buffer.write(payloadOf(i), i);
  takeAll(buffer);
  buffer.rewind(1);
  buffer.dropThrough(3);
  assert.deepEqual(takeAll(buffer), [[4, 4, 4]]);
});

/** Frames on the wire, alone and several in a message. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { BUS_LIMITS, STREAM_LIMITS } from "../../limits.ts";
import * as frame from "./frame.ts";

Deno.test("decodeFrame() reads what encodeFrame() writes: the documented 16 bytes, then the payload", () => {
  const payload = Buffer.of(7, 8);
  const numbers = { sequence: 0x01020304, offerNumber: 2, tokens: 0xfffefdfc };
  assert.deepEqual(
    [...frame.encodeFrame({ type: frame.FrameType.DATA, ...numbers }, payload)],
    [1, 3, 0, 0, 1, 2, 3, 4, 0, 0, 0, 2, 0xff, 0xfe, 0xfd, 0xfc, 7, 8],
  );
  for (const type of Object.values(frame.FrameType)) {
    for (const number of [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]) {
      const numbers = { sequence: number, offerNumber: number, tokens: number };
      const original = { type, ...numbers, payload };
      const message = frame.encodeFrame(original, payload);
      assert.deepEqual(frame.decodeFrame(message), original);
    }
  }
});

Deno.test("decodeFrame() returns null for what is no frame of this version", () => {
  const good = frame.encodeFrame(
    { type: frame.FrameType.BEAT, sequence: 1, offerNumber: 1, tokens: 0 },
    new Uint8Array(0),
  );
  const table: Uint8Array[] = [
    new Uint8Array(0),
    good.subarray(0, frame.FRAME_HEADER_BYTES - 1),
    // A frame of another version, then one of an unknown type.
    good.with(0, 0),
    good.with(0, 2),
    good.with(1, 0),
    good.with(1, 7),
    good.with(1, 255),
  ];
  for (const message of table) assert.equal(frame.decodeFrame(message), null);
  assert.notEqual(frame.decodeFrame(good), null);
  assert.notEqual(frame.decodeFrame(good.with(2, 0xff)), null, "flags");
});

Deno.test("a message carries frames of several requests, and many frames take several", () => {
  const frames = Array.from({ length: 20 }, (_, index) => {
    const { framePayloadBytesMax: most } = STREAM_LIMITS;
    const payload = Buffer.alloc(index % 3 === 0 ? most : 7, index);
    const header = { sequence: index, offerNumber: 1, tokens: 0 };
    const data = { type: frame.FrameType.DATA, ...header, payload };
    return [index.toString(16).padStart(32, "0"), data] as const;
  });
  const encoded = frames.map(([requestId, data]) =>
    [requestId, frame.encodeFrame(data, data.payload)] as const
  );
  assert.equal(frame.encodeFrames(encoded.slice(1, 4)).length, 1);
  const messages = frame.encodeFrames(encoded);
  assert.ok(messages.every(({ length }) => length <= BUS_LIMITS.batchBytesMax));
  assert.deepEqual(
    messages.flatMap((each) => frame.decodeFrames(each) ?? []),
    frames,
  );

  const [good = new Uint8Array()] = frame.encodeFrames(encoded.slice(1, 2));
  assert.equal(frame.decodeFrames(good.with(0, 1)), null, "another version");
  for (const cut of [0, 2, 20, 21, 40, good.length - 1]) {
    assert.equal(frame.decodeFrames(good.subarray(0, cut)), null, `${cut}`);
  }
});

import assert from "node:assert/strict";
import {
  decodeFrame,
  encodeFrame,
  FRAME_HEADER_BYTES,
  FRAME_NUMBER_MAX,
  FrameType,
  writeFrameHeader,
} from "./frame.ts";

Deno.test("encodeFrame() writes the documented 16 bytes, then the payload", () => {
  const frame = encodeFrame(
    {
      type: FrameType.DATA,
      sequence: 0x01020304,
      attempt: 2,
      tokens: 0xfffefdfc,
    },
    Uint8Array.of(7, 8),
  );
  assert.deepEqual(
    [...frame],
    [1, 3, 0, 0, 1, 2, 3, 4, 0, 0, 0, 2, 0xff, 0xfe, 0xfd, 0xfc, 7, 8],
  );
});

Deno.test("decodeFrame() reads back what encodeFrame() wrote", () => {
  for (const type of Object.values(FrameType)) {
    for (const number of [0, 1, 0x7fff_ffff, 0x8000_0000, FRAME_NUMBER_MAX]) {
      const header = {
        type,
        sequence: number,
        attempt: number,
        tokens: number,
      };
      const payload = Uint8Array.of(1, 2, 3);
      assert.deepEqual(decodeFrame(encodeFrame(header, payload)), {
        ...header,
        payload,
      });
    }
  }
});

Deno.test("decodeFrame() does not copy the payload", () => {
  const message = encodeFrame(
    { type: FrameType.DATA, sequence: 1, attempt: 1, tokens: 0 },
    Uint8Array.of(1),
  );
  const frame = decodeFrame(message);
  assert(typeof frame === "object");
  assert.equal(frame.payload.buffer, message.buffer);
});

Deno.test("decodeFrame() names what is wrong with a message", () => {
  const good = encodeFrame(
    { type: FrameType.BEAT, sequence: 1, attempt: 1, tokens: 0 },
    new Uint8Array(0),
  );
  const table: [name: string, message: Uint8Array, fault: string][] = [
    ["no bytes", new Uint8Array(0), "short"],
    [
      "a byte less than a header",
      good.subarray(0, FRAME_HEADER_BYTES - 1),
      "short",
    ],
    ["version 0", good.with(0, 0), "unknown_version"],
    ["version 2", good.with(0, 2), "unknown_version"],
    ["type 0", good.with(1, 0), "unknown_type"],
    ["type 7", good.with(1, 7), "unknown_type"],
    ["type 255", good.with(1, 255), "unknown_type"],
  ];
  for (const [name, message, fault] of table) {
    assert.equal(decodeFrame(message), fault, name);
  }
  assert(typeof decodeFrame(good) === "object");
  assert(typeof decodeFrame(good.with(2, 0xff)) === "object", "flags");
});

Deno.test("writeFrameHeader() writes in the middle of a buffer and nowhere else", () => {
  const buffer = new Uint8Array(FRAME_HEADER_BYTES + 4).fill(0xee);
  writeFrameHeader(
    { type: FrameType.END, sequence: 1, attempt: 1, tokens: 1 },
    buffer,
    2,
  );
  assert.deepEqual([...buffer.subarray(0, 2)], [0xee, 0xee]);
  assert.deepEqual([...buffer.subarray(18)], [0xee, 0xee]);
  assert.equal(buffer[3], FrameType.END);
});

Deno.test("writeFrameHeader() throws when there is no room", () => {
  const header = { type: FrameType.END, sequence: 1, attempt: 1, tokens: 1 };
  writeFrameHeader(header, new Uint8Array(16), 0);
  assert.throws(
    () => writeFrameHeader(header, new Uint8Array(16), 1),
    RangeError,
  );
});

/** Control records on the wire. */
import assert from "node:assert/strict";
import {
  CONTROL_PROBE,
  CONTROL_RECORD_BYTES,
  type ControlRecord,
  decodeControl,
  encodeControl,
} from "./control.ts";

const ID_A = "00112233445566778899aabbccddeeff";
const ID_B = "ffffffffffffffffffffffffffffffff";

const ack = (sequence: number, requestId = ID_A): ControlRecord => {
  return { type: "ack", requestId, offerNumber: 1, sequence };
};

const encode = (...records: ControlRecord[]) => encodeControl(records);

Deno.test("a message has records of several requests, each of the documented 25 bytes", () => {
  const nak: ControlRecord = {
    type: "nak",
    requestId: ID_A,
    offerNumber: 0x0102,
    sequence: 0x0304,
  };
  const cancel = { type: "cancel", reason: "client_gone" } as const;
  const records: ControlRecord[] = [
    nak,
    ack(0xffff_ffff, ID_B),
    { ...cancel, requestId: ID_A, offerNumber: 3 },
  ];
  const message = encode(...records);
  assert.deepEqual(decodeControl(message), records);
  assert.deepEqual([...message.subarray(0, 1 + CONTROL_RECORD_BYTES)], [
    1,
    2,
    0x00,
    0x11,
    0x22,
    0x33,
    0x44,
    0x55,
    0x66,
    0x77,
    0x88,
    0x99,
    0xaa,
    0xbb,
    0xcc,
    0xdd,
    0xee,
    0xff,
    0,
    0,
    1,
    2,
    0,
    0,
    3,
    4,
  ]);
});

Deno.test("decodeControl() returns no records of a message that is truncated or of another version", () => {
  const good = encode(ack(1));
  const table = [
    new Uint8Array(0),
    good.with(0, 0),
    good.with(0, 2),
    good.subarray(0, -1),
    Uint8Array.of(...good, 0),
    CONTROL_PROBE,
  ];
  for (const message of table) assert.deepEqual(decodeControl(message), []);
});

Deno.test("decodeControl() skips unknown types, and reads unknown reasons as other", () => {
  const message = encode(ack(1), ack(2), ack(3));
  const records = decodeControl(message.with(1 + CONTROL_RECORD_BYTES, 9));
  assert.deepEqual(records, [ack(1), ack(3)]);

  const cancel = { type: "cancel", requestId: ID_A, offerNumber: 1 } as const;
  const shutdown = encode({ ...cancel, reason: "shutdown" });
  assert.deepEqual(decodeControl(shutdown.with(shutdown.length - 1, 200)), [
    { ...cancel, reason: "other" },
  ]);
});

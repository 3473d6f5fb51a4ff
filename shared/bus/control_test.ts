import assert from "node:assert/strict";
import {
  CONTROL_PROBE,
  CONTROL_RECORD_BYTES,
  CONTROL_RECORDS_MAX,
  ControlBatch,
  type ControlSink,
  decodeControl,
} from "./control.ts";

const ID_A = "00112233445566778899aabbccddeeff";
const ID_B = "ffffffffffffffffffffffffffffffff";

function recorder(): ControlSink & { records: unknown[][] } {
  const records: unknown[][] = [];
  return {
    records,
    ack: (...record) => records.push(["ack", ...record]),
    nak: (...record) => records.push(["nak", ...record]),
    cancel: (...record) => records.push(["cancel", ...record]),
  };
}

function collector(): { batch: ControlBatch; messages: Uint8Array[] } {
  const messages: Uint8Array[] = [];
  const batch = new ControlBatch((message) => messages.push(message));
  return { batch, messages };
}

function encode(add: (batch: ControlBatch) => void): Uint8Array {
  const { batch, messages } = collector();
  add(batch);
  batch.flush();
  assert.equal(messages.length, 1);
  return messages[0] ?? new Uint8Array(0);
}

Deno.test("ControlBatch puts the records of a turn into one message", () => {
  const message = encode((batch) => {
    batch.ack(ID_A, 1, 0xffff_ffff);
    batch.nak(ID_B, 2, 7);
    batch.cancel(ID_A, 3, "client_gone");
  });
  const sink = recorder();
  assert.equal(decodeControl(message, sink), true);
  assert.deepEqual(sink.records, [
    ["ack", ID_A, 1, 0xffff_ffff],
    ["nak", ID_B, 2, 7],
    ["cancel", ID_A, 3, "client_gone"],
  ]);
});

Deno.test("a record has the documented 25 bytes", () => {
  const message = encode((batch) => batch.nak(ID_A, 0x0102, 0x0304));
  assert.deepEqual([...message], [
    ...[1, 2],
    ...[0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77],
    ...[0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff],
    ...[0, 0, 1, 2, 0, 0, 3, 4],
  ]);
});

Deno.test("ControlBatch sends nothing when there is nothing, and each record once", () => {
  const { batch, messages } = collector();
  batch.flush();
  assert.equal(messages.length, 0);
  batch.ack(ID_A, 1, 1);
  assert.equal(batch.isEmpty, false);
  batch.flush();
  batch.flush();
  assert.equal(batch.isEmpty, true);
  assert.equal(messages.length, 1);
});

Deno.test("a sent message is not changed by what the batch collects next", () => {
  const { batch, messages } = collector();
  batch.ack(ID_A, 1, 1);
  batch.flush();
  const before = [...messages[0] ?? []];
  batch.ack(ID_B, 2, 2);
  batch.flush();
  assert.deepEqual([...messages[0] ?? []], before);
});

Deno.test("ControlBatch sends a full message by itself", () => {
  const { batch, messages } = collector();
  for (let i = 1; i < CONTROL_RECORDS_MAX; i++) batch.ack(ID_A, 1, i);
  assert.equal(messages.length, 0);
  batch.ack(ID_A, 1, CONTROL_RECORDS_MAX);
  assert.equal(messages.length, 1);
  batch.ack(ID_A, 1, CONTROL_RECORDS_MAX + 1);
  batch.flush();
  const sequences = messages.flatMap((message) => {
    const sink = recorder();
    assert.equal(decodeControl(message, sink), true);
    return sink.records.map((record) => record[3]);
  });
  assert.equal(sequences.length, CONTROL_RECORDS_MAX + 1);
  assert(sequences.every((sequence, i) => sequence === i + 1));
});

Deno.test("decodeControl() does nothing for a message it cannot read", () => {
  const good = encode((batch) => batch.ack(ID_A, 1, 1));
  const table: [name: string, message: Uint8Array][] = [
    ["no bytes", new Uint8Array(0)],
    ["version 0", good.with(0, 0)],
    ["version 2", good.with(0, 2)],
    ["a byte too few", good.subarray(0, -1)],
    ["a byte too many", Uint8Array.of(...good, 0)],
  ];
  for (const [name, message] of table) {
    const sink = recorder();
    assert.equal(decodeControl(message, sink), false, name);
    assert.deepEqual(sink.records, [], name);
  }
});

Deno.test("decodeControl() passes over records of an unknown type", () => {
  const message = encode((batch) => {
    batch.ack(ID_A, 1, 1);
    batch.ack(ID_A, 1, 2);
    batch.ack(ID_A, 1, 3);
  });
  const sink = recorder();
  const second = 1 + CONTROL_RECORD_BYTES;
  assert.equal(decodeControl(message.with(second, 9), sink), true);
  assert.deepEqual(sink.records.map((record) => record[3]), [1, 3]);
});

Deno.test("decodeControl() reads a cancel reason it does not know as other", () => {
  const message = encode((batch) => batch.cancel(ID_A, 1, "shutdown"));
  const sink = recorder();
  decodeControl(message.with(message.length - 1, 200), sink);
  assert.deepEqual(sink.records, [["cancel", ID_A, 1, "other"]]);
});

Deno.test("a probe is a message without records", () => {
  const sink = recorder();
  assert.equal(decodeControl(CONTROL_PROBE, sink), true);
  assert.deepEqual(sink.records, []);
});

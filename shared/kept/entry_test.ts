// Guarantee: only who has the key of a request reads its entries, and none of them can
// stand for another.
import assert from "node:assert/strict";
import { FrameType } from "../bus/stream/frame.ts";
import {
  KEPT_KEY_BYTES,
  type KeptSubject,
  openEntry,
  placeOf,
  sealEntry,
} from "./entry.ts";

const SUBJECT: KeptSubject = {
  requestId: "0123456789abcdef0123456789abcdef",
  key: new Uint8Array(KEPT_KEY_BYTES).fill(1),
};
const HEADER = {
  type: FrameType.DATA,
  sequence: 7,
  offerNumber: 2,
  tokens: 11,
};
const SECRET = new TextEncoder().encode("a secret answer");

Deno.test("an entry is read as it was written, and its place without the key", () => {
  const entry = sealEntry(SUBJECT, HEADER, SECRET);
  const frame = openEntry(SUBJECT, entry) ?? assert.fail("not read");
  const { payload, ...header } = frame;
  assert.deepEqual(header, HEADER);
  assert.deepEqual(new Uint8Array(payload), SECRET);
  assert.deepEqual(placeOf(entry), { offerNumber: 2, number: 7 });
  assert.ok(!new TextDecoder().decode(entry).includes("secret"));
});

Deno.test("an entry of another request, another key or with one other bit is not read", () => {
  const entry = sealEntry(SUBJECT, HEADER, SECRET);
  const requestId = "f".repeat(32);
  assert.equal(openEntry({ ...SUBJECT, requestId }, entry), null);
  const key = new Uint8Array(KEPT_KEY_BYTES).fill(2);
  assert.equal(openEntry({ ...SUBJECT, key }, entry), null);
  for (let at = 0; at < entry.length; at += 1) {
    const changed = new Uint8Array(entry);
    changed[at] = (changed[at] ?? 0) ^ 1;
    assert.equal(openEntry(SUBJECT, changed), null, `byte ${at}`);
  }
  for (let length = 0; length < entry.length; length += 1) {
    assert.equal(openEntry(SUBJECT, entry.subarray(0, length)), null);
  }
});

Deno.test("two entries with the same text have no bytes in common but their place", () => {
  const one = sealEntry(SUBJECT, HEADER, SECRET);
  const other = sealEntry(SUBJECT, { ...HEADER, sequence: 8 }, SECRET);
  const same = one.filter((byte, at) => byte === other[at]).length;
  assert.ok(same < one.length / 2, `${same} of ${one.length}`);
});

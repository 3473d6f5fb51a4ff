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
const PLACE = { offerNumber: 2, number: 7 };
const bytes = (text: string) => new TextEncoder().encode(text);
const { DATA, END } = FrameType;
const DATA_FRAME = {
  type: DATA,
  tokens: 11,
  payload: bytes("a secret answer"),
};
const FRAMES = [DATA_FRAME, { type: END, tokens: 12, payload: bytes("{}") }];

Deno.test("an entry is read as it was written, and its place without the key", () => {
  const entry = sealEntry(SUBJECT, PLACE, FRAMES);
  const frames = openEntry(SUBJECT, entry) ?? assert.fail("not read");
  const { offerNumber, number: sequence } = PLACE;
  assert.deepEqual(
    frames.map(({ payload, ...more }) => ({
      ...more,
      payload: new Uint8Array(payload),
    })),
    FRAMES.map((frame) => ({ ...frame, offerNumber, sequence })),
  );
  assert.deepEqual(placeOf(entry), PLACE);
  assert.ok(!new TextDecoder().decode(entry).includes("secret"));
});

Deno.test("an entry of another request, another key or with one other bit is not read", () => {
  const entry = sealEntry(SUBJECT, PLACE, FRAMES);
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

Deno.test("an entry without a frame is none", () => {
  assert.equal(openEntry(SUBJECT, sealEntry(SUBJECT, PLACE, [])), null);
});

Deno.test("two entries with the same text have no bytes in common but their place", () => {
  const one = sealEntry(SUBJECT, PLACE, FRAMES);
  const other = sealEntry(SUBJECT, { ...PLACE, number: 8 }, FRAMES);
  const same = one.filter((byte, at) => byte === other[at]).length;
  assert.ok(same < one.length / 2, `${same} of ${one.length}`);
});

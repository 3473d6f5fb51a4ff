/** What a writer appends: how much of an answer an entry has, and its end. */
import assert from "node:assert/strict";
import { FrameType } from "../../bus/stream/frame.ts";
import { KEPT_KEY_BYTES, openEntry } from "../../kept/entry.ts";
import { KEPT_LIMITS } from "../../kept/limits.ts";
import { KeptWriter, type LastEntry } from "./kept_writer.ts";

const SUBJECT = {
  requestId: "0123456789abcdef0123456789abcdef",
  key: new Uint8Array(KEPT_KEY_BYTES).fill(3),
};
const { DATA, END, ERR } = FrameType;
const bytes = (text: string) => new TextEncoder().encode(text);
const endOf = (type: LastEntry["type"]): LastEntry => ({
  type,
  payload: bytes("{}"),
  tokens: 9,
});

/** A writer whose turns of the event loop and pauses end when the test says so. */
function start() {
  const turns: (() => void)[] = [];
  const pauses: (() => void)[] = [];
  const entries: Uint8Array[] = [];
  const writer = new KeptWriter({
    ...SUBJECT,
    offerNumber: 1,
    log: {
      append: (_requestId, entry) => {
        entries.push(new Uint8Array(entry));
        return Promise.resolve(entries.length);
      },
      last: () => Promise.reject(new Error("nobody asks for it")),
    },
    now: () => 0,
    schedule: (run) => turns.push(run),
    afterPause: (run) => pauses.push(run),
    onFailed: (error) => assert.fail(error),
  });
  const end = async (waiting: (() => void)[]) => {
    for (const run of waiting.splice(0)) run();
    // Everything that was waiting for it goes on.
    await new Promise((resolve) => setImmediate(resolve));
  };
  return {
    writer,
    endTurn: () => end(turns),
    endPause: () => end(pauses),
    /** The frames of each entry: their types, and how many bytes they have. */
    get entries() {
      return entries.map((entry, index) => {
        const frames = openEntry(SUBJECT, entry) ?? assert.fail("not read");
        return frames.map(({ type, payload, sequence }) => {
          assert.equal(sequence, index + 1);
          return [type, payload.length];
        });
      });
    },
  };
}

for (const type of [END, ERR] as const) {
  Deno.test(`an answer that ends in the turn in which it comes is one entry, with its end of type ${type}`, async () => {
    const t = start();
    void t.writer.write(bytes("one"), 1);
    void t.writer.write(bytes(" two"), 2);
    const ended = t.writer.end(endOf(type));
    await t.endTurn();
    await ended;
    assert.deepEqual(t.entries, [[[DATA, 7], [type, 2]]]);
  });
}

Deno.test("what comes during a pause is one entry; the end does not wait for the pause", async () => {
  const t = start();
  void t.writer.write(bytes("one"), 1);
  await t.endTurn();
  assert.deepEqual(t.entries, [[[DATA, 3]]]);
  void t.writer.write(bytes("two "), 2);
  void t.writer.write(bytes("three"), 3);
  await t.endTurn();
  assert.equal(t.entries.length, 1);
  await t.endPause();
  assert.deepEqual(t.entries.at(-1), [[DATA, 9]]);
  void t.writer.write(bytes("4"), 4);
  await t.writer.end(endOf(END));
  assert.deepEqual(t.entries.at(-1), [[DATA, 1], [END, 2]]);
  assert.equal(t.entries.length, 3);
});

Deno.test("an answer without a byte has its end alone", async () => {
  const t = start();
  const ended = t.writer.end(endOf(END));
  await t.endTurn();
  await ended;
  assert.deepEqual(t.entries, [[[END, 2]]]);
});

const { entryBytesMax: most } = KEPT_LIMITS;
const LONG: { bytes: number; entries: [number, number][][] }[] = [
  { bytes: most, entries: [[[DATA, most], [END, 2]]] },
  { bytes: most + 1, entries: [[[DATA, most]], [[DATA, 1], [END, 2]]] },
  { bytes: 2 * most, entries: [[[DATA, most]], [[DATA, most], [END, 2]]] },
];

Deno.test("an entry has no more of an answer than it may", async () => {
  for (const { bytes: length, entries } of LONG) {
    const t = start();
    void t.writer.write(new Uint8Array(length), 1);
    const ended = t.writer.end(endOf(END));
    await t.endTurn();
    await ended;
    assert.deepEqual(t.entries, entries, `${length} bytes`);
  }
});

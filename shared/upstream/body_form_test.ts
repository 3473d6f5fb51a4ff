/** What a body is: its first bytes decide, else its content type. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { everySplit } from "./http/bytes_fixture.ts";
import { type BodyForm, readStart } from "./body_form.ts";

interface Body {
  bytes: string;
  shown: BodyForm | null;
  /** By the content type, where the bytes do not show it. */
  form?: BodyForm;
  contentType?: string;
}

const BODIES: Body[] = [
  { bytes: '{"a":1}', shown: "json" },
  { bytes: '{"a":1}', contentType: "text/event-stream", shown: "json" },
  { bytes: '\n {\r\n\t"a": 1}', shown: "json" },
  { bytes: '\xef\xbb\xbf{"a":1}', shown: "json" },
  { bytes: "{}", contentType: "audio/mpeg", shown: "json" },
  { bytes: 'data: {"a":1}\n\n', shown: "events" },
  { bytes: ": ping\n\n", contentType: "text/plain", shown: "events" },
  { bytes: "event: x\ndata: 1\n\n", shown: "events" },
  { bytes: "\xef\xbb\xbfid: 1\ndata: 1\n\n", shown: "events" },
  { bytes: "<!DOCTYPE HTML><p>Hi", shown: "page" },
  { bytes: "  <html lang=de>", contentType: "audio/mpeg", shown: "page" },
  { bytes: "<p>Hi", contentType: "text/html", shown: "page" },
  { bytes: "<svg xmlns='a'/>", shown: null },
  { bytes: "<|en|> Hello you", shown: null },
  { bytes: "Hi", contentType: "text/html", shown: null, form: "page" },
  { bytes: "Hi", shown: null, form: "json" },
  {
    bytes: "[1]",
    contentType: "text/event-stream",
    shown: null,
    form: "events",
  },
  // Samples of sound, of which the first ones happen to be characters.
  { bytes: '{"\x00\x01\x02\x03', shown: null },
  { bytes: "{abc", shown: null },
  { bytes: `{"${"a".repeat(20)}\xff\xfe`, shown: null },
];

async function startOf(pieces: Uint8Array[], contentType: string) {
  let armed = 0;
  const waiting = [...pieces];
  const start = await readStart({
    connection: { read: () => Promise.resolve(waiting.shift() ?? null) },
    deadlines: {
      arm: () => {
        armed += 1;
      },
    },
    head: { contentType },
  }, 1);
  // The rest, too, so that nothing may be lost.
  const all = Buffer.concat([start.bytes ?? Buffer.alloc(0), ...waiting]);
  assert.deepEqual(all, Buffer.concat(pieces));
  assert.ok(armed <= pieces.length, "a deadline for each wait");
  return start;
}

for (const { bytes, contentType = "", shown, form } of BODIES) {
  const name = `${JSON.stringify(bytes)} of "${contentType}"`;
  Deno.test(`readStart() knows ${name} as ${shown}`, async () => {
    const start = await startOf([Buffer.from(bytes, "latin1")], contentType);
    assert.equal(start.formOfBytes, shown);
    assert.equal(start.form, shown ?? form ?? "json");
  });
}

Deno.test("readStart() knows a body however it is cut, as far as its pieces show it", async () => {
  for (const { bytes, contentType = "", shown } of BODIES) {
    // A body that shows what it is by a later byte is known by the first ones.
    if (shown === null) continue;
    for (const pieces of everySplit(Buffer.from(bytes, "latin1"))) {
      const start = await startOf(pieces, contentType);
      assert.equal(start.formOfBytes, shown, JSON.stringify(bytes));
    }
  }
});

Deno.test("readStart() says that an empty body is what its content type says", async () => {
  const start = await startOf([], "text/event-stream");
  assert.deepEqual(start, {
    bytes: null,
    formOfBytes: null,
    form: "events",
  });
});

/** The first line of an answer with media. */
import assert from "node:assert/strict";
import { encodeMediaHead, MediaHeadReader } from "./media_head.ts";

const HEAD = { content_type: "audio/mpeg" };
const encode = (text: string) => new TextEncoder().encode(text);

Deno.test("a head is read from bytes cut anywhere, and the rest is left as it is", () => {
  const bytes = encode(`${encodeMediaHead(HEAD)}\n{"a":1}\n`);
  for (let at = 0; at <= bytes.length; at += 1) {
    const reader = new MediaHeadReader();
    const first = reader.push(bytes.subarray(0, at));
    const result = first ?? reader.push(bytes.subarray(at));
    assert.ok(result !== null && result !== "invalid", `${at}`);
    assert.deepEqual(result.head, HEAD);
    const rest = first === null
      ? result.rest
      : [...result.rest, ...bytes.subarray(at)];
    const text = new TextDecoder().decode(Uint8Array.from(rest));
    assert.equal(text, '\n{"a":1}\n');
  }
});

Deno.test("a first line that is no head is invalid", () => {
  const injected = '{"content_type":"a\\r\\nx: y"}\n';
  for (const text of ["garbage\n", "{}\n", injected, "x".repeat(4_097)]) {
    assert.equal(new MediaHeadReader().push(encode(text)), "invalid", text);
  }
});

import assert from "node:assert/strict";
import { UpstreamError } from "./errors.ts";
import { createBodyDecoder } from "./http_framing.ts";
import type { BodyFraming } from "./http_framing.ts";

interface Decoded {
  text: string;
  isComplete: boolean;
  mayEnd: boolean;
  surplusBytes: number;
}

/** Decodes with the bytes placed in the middle of a larger buffer, as a read places them. */
function decode(framing: BodyFraming, pieces: Uint8Array[]): Decoded {
  const decoder = createBodyDecoder(framing);
  const text = new TextDecoder();
  let out = "";
  let surplusBytes = 0;
  for (const piece of pieces) {
    const buffer = new Uint8Array(piece.length + 8).fill(0x21);
    buffer.set(piece, 3);
    const payload = decoder.decode(buffer, 3, 3 + piece.length);
    out += text.decode(payload, { stream: true });
    surplusBytes += decoder.surplusBytes;
  }
  const { isComplete, mayEnd } = decoder;
  return { text: out, isComplete, mayEnd, surplusBytes };
}

function* everySplit(input: string): Iterable<Uint8Array[]> {
  const bytes = new TextEncoder().encode(input);
  yield [bytes];
  yield Array.from(bytes, (byte) => Uint8Array.of(byte));
  for (let at = 1; at < bytes.length; at++) {
    yield [bytes.subarray(0, at), bytes.subarray(at)];
  }
}

const chunked: BodyFraming = "chunked";
const whole = { isComplete: true, mayEnd: true, surplusBytes: 0 };
const cut = { isComplete: false, mayEnd: false, surplusBytes: 0 };

const cases:
  ({ name: string; framing: BodyFraming; input: string } & Decoded)[] = [
    {
      name: "one chunk",
      framing: chunked,
      input: "5\r\nhello\r\n0\r\n\r\n",
      text: "hello",
      ...whole,
    },
    {
      name: "chunks one after the other",
      framing: chunked,
      input:
        "1\r\na\r\n2\r\nbc\r\nA\r\n0123456789\r\nb\r\nhello world\r\n0\r\n\r\n",
      text: "abc0123456789hello world",
      ...whole,
    },
    {
      name: "an empty body in chunks",
      framing: chunked,
      input: "0\r\n\r\n",
      text: "",
      ...whole,
    },
    {
      name: "payload that looks like framing",
      framing: chunked,
      input: "5\r\n0\r\n\r\n\r\n0\r\n\r\n",
      text: "0\r\n\r\n",
      ...whole,
    },
    {
      name: "split characters",
      framing: chunked,
      input: "4\r\n😀\r\n3\r\n€\r\n0\r\n\r\n",
      text: "😀€",
      ...whole,
    },
    {
      name: "leading zeros",
      framing: chunked,
      input: "0005\r\nhello\r\n00\r\n\r\n",
      text: "hello",
      ...whole,
    },
    {
      name: "extensions and padding",
      framing: chunked,
      input: '5;a="b"\r\nhello\r\n1 \r\n!\r\n0;x\r\n\r\n',
      text: "hello!",
      ...whole,
    },
    {
      name: "trailers",
      framing: chunked,
      input: "1\r\na\r\n0\r\nx: y\r\nz: w\r\n\r\n",
      text: "a",
      ...whole,
    },
    {
      name: "single line feeds",
      framing: chunked,
      input: "5\nhello\n0\n\n",
      text: "hello",
      ...whole,
    },
    {
      name: "chunks cut in the data",
      framing: chunked,
      input: "5\r\nhel",
      text: "hel",
      ...cut,
    },
    {
      name: "chunks cut after the data",
      framing: chunked,
      input: "5\r\nhello\r\n",
      text: "hello",
      ...cut,
    },
    {
      name: "chunks cut in the size",
      framing: chunked,
      input: "5\r\nhello\r\n1",
      text: "hello",
      ...cut,
    },
    {
      name: "chunks cut before the blank line",
      framing: chunked,
      input: "5\r\nhello\r\n0\r\n",
      text: "hello",
      ...cut,
    },
    {
      name: "bytes after the last chunk",
      framing: chunked,
      input: "1\r\na\r\n0\r\n\r\nHTTP",
      text: "a",
      isComplete: true,
      mayEnd: true,
      surplusBytes: 4,
    },
    {
      name: "a length",
      framing: 5,
      input: "hello",
      text: "hello",
      ...whole,
    },
    {
      name: "a length cut short",
      framing: 6,
      input: "hello",
      text: "hello",
      ...cut,
    },
    {
      name: "bytes after a length",
      framing: 3,
      input: "hello",
      text: "hel",
      isComplete: true,
      mayEnd: true,
      surplusBytes: 2,
    },
    {
      name: "bytes where none may be",
      framing: 0,
      input: "x",
      text: "",
      isComplete: true,
      mayEnd: true,
      surplusBytes: 1,
    },
    {
      name: "all there is",
      framing: "close",
      input: "hello",
      text: "hello",
      isComplete: false,
      mayEnd: true,
      surplusBytes: 0,
    },
  ];

for (const { name, framing, input, ...expected } of cases) {
  Deno.test(`createBodyDecoder() takes ${name}, however it is cut`, () => {
    for (const pieces of everySplit(input)) {
      assert.deepEqual(decode(framing, pieces), expected);
    }
  });
}

const malformed: { name: string; input: string }[] = [
  { name: "no size", input: "\r\nhello" },
  { name: "a size that is no number", input: "xyz\r\n" },
  { name: "a sign", input: "-5\r\nhello" },
  { name: "a prefix", input: "0x5\r\nhello" },
  { name: "a size of eight digits", input: "00000005\r\nhello" },
  { name: "a chunk longer than its size", input: "4\r\nhello\r\n" },
  { name: "a carriage return alone after the size", input: "5\rhello" },
  { name: "a carriage return alone after the data", input: "1\r\na\rb" },
  { name: "a carriage return alone at the end", input: "0\r\n\rx" },
  { name: "endless extensions", input: `1;${"x".repeat(17_000)}` },
  { name: "endless trailers", input: `0\r\n${"a: b\r\n".repeat(4_000)}` },
];

for (const { name, input } of malformed) {
  Deno.test(`createBodyDecoder() refuses ${name}`, () => {
    const bytes = new TextEncoder().encode(input);
    const isRefusal = (error: unknown) =>
      error instanceof UpstreamError && error.fault === "invalid";
    assert.throws(() => decode(chunked, [bytes]), isRefusal);
    const single = Array.from(bytes, (byte) => Uint8Array.of(byte));
    assert.throws(() => decode(chunked, single), isRefusal);
  });
}

Deno.test("createBodyDecoder() leaves the payload of a single chunk where it is", () => {
  const buffer = new TextEncoder().encode("5\r\nhello\r\n");
  const payload = createBodyDecoder(chunked).decode(buffer, 0, buffer.length);
  assert.equal(payload.byteOffset, 3);
  assert.equal(payload.buffer, buffer.buffer);
});

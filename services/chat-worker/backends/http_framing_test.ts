import assert from "node:assert/strict";
import { UpstreamError } from "./errors.ts";
import {
  BodyDecoder,
  type BodyFraming,
  findHeadEnd,
  parseResponseHead,
  type ResponseHead,
} from "./http_framing.ts";

const usual: ResponseHead = {
  status: 200,
  framing: "close",
  isKeepAlive: true,
  contentType: "",
  contentEncoding: "",
  retryAfter: null,
  retryAfterMs: null,
};

const heads: { name: string; text: string; head: Partial<ResponseHead> }[] = [
  { name: "a bare status line", text: "HTTP/1.1 200 OK\r\n\r\n", head: {} },
  { name: "no reason phrase", text: "HTTP/1.1 200\r\n\r\n", head: {} },
  {
    name: "single line feeds",
    text: "HTTP/1.1 503 Busy\nretry-after: 7\n\n",
    head: { status: 503, retryAfter: "7" },
  },
  {
    name: "a content length",
    text: "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n",
    head: { framing: 12 },
  },
  {
    name: "two equal content lengths",
    text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length:5\r\n\r\n",
    head: { framing: 5 },
  },
  {
    name: "an empty body",
    text: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    head: { framing: 0 },
  },
  {
    name: "chunks",
    text: "HTTP/1.1 200 OK\r\nTransfer-Encoding:  Chunked \r\n\r\n",
    head: { framing: "chunked" },
  },
  {
    name: "chunks beside a length, and distrust",
    text:
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    head: { framing: "chunked", isKeepAlive: false },
  },
  {
    name: "a status without a body",
    text: "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
    head: { status: 204, framing: 0 },
  },
  {
    name: "an interim status",
    text: "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
    head: { status: 103, framing: 0 },
  },
  {
    name: "a connection that ends",
    text: "HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n",
    head: { isKeepAlive: false },
  },
  {
    name: "an old server",
    text: "HTTP/1.0 200 OK\r\n\r\n",
    head: { isKeepAlive: false },
  },
  {
    name: "an old server that keeps the connection",
    text: "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n",
    head: { isKeepAlive: true },
  },
  {
    name: "types and codings",
    text:
      "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\nContent-Encoding: GZIP\r\nRetry-After-Ms: 20\r\n\r\n",
    head: {
      contentType: "text/event-stream",
      contentEncoding: "gzip",
      retryAfterMs: "20",
    },
  },
  {
    name: "values of any bytes",
    text: "HTTP/1.1 200 OK\r\nx-a: \ufffd:\u0000\r\nx-b:\r\n\r\n",
    head: {},
  },
];

for (const { name, text, head } of heads) {
  Deno.test(`parseResponseHead() reads ${name}`, () => {
    assert.deepEqual(parseResponseHead(text), { ...usual, ...head });
  });
}

const malformed: { name: string; text: string }[] = [
  { name: "nothing", text: "\r\n\r\n" },
  { name: "another protocol", text: "ICY 200 OK\r\n\r\n" },
  { name: "another version", text: "HTTP/2 200 OK\r\n\r\n" },
  { name: "a status of two digits", text: "HTTP/1.1 20 OK\r\n\r\n" },
  { name: "a status of four digits", text: "HTTP/1.1 2000 OK\r\n\r\n" },
  { name: "a line without a colon", text: "HTTP/1.1 200 OK\r\nabc\r\n\r\n" },
  { name: "a nameless header", text: "HTTP/1.1 200 OK\r\n: a\r\n\r\n" },
  { name: "a blank in a name", text: "HTTP/1.1 200 OK\r\na b: c\r\n\r\n" },
  { name: "a blank after a name", text: "HTTP/1.1 200 OK\r\na : c\r\n\r\n" },
  { name: "a folded header", text: "HTTP/1.1 200 OK\r\na: b\r\n c: d\r\n\r\n" },
  {
    name: "two lengths",
    text: "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
  },
  {
    name: "a signed length",
    text: "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
  },
  {
    name: "a negative length",
    text: "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
  },
  {
    name: "a length of words",
    text: "HTTP/1.1 200 OK\r\ncontent-length: 1, 1\r\n\r\n",
  },
  {
    name: "a length of 16 digits",
    text: `HTTP/1.1 200 OK\r\ncontent-length: ${"9".repeat(16)}\r\n\r\n`,
  },
  {
    name: "a coding",
    text: "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
  },
  {
    name: "201 headers",
    text: `HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(201)}\r\n`,
  },
];

for (const { name, text } of malformed) {
  Deno.test(`parseResponseHead() refuses ${name}`, () => {
    assert.throws(
      () => parseResponseHead(text),
      (error) => error instanceof UpstreamError && error.fault === "invalid",
    );
  });
}

Deno.test("parseResponseHead() takes 200 headers", () => {
  const text = `HTTP/1.1 200 OK\r\n${"a: b\r\n".repeat(200)}\r\n`;
  assert.deepEqual(parseResponseHead(text), usual);
});

const ends: { text: string; end: number }[] = [
  { text: "a\r\n\r\nb", end: 5 },
  { text: "a\n\nb", end: 3 },
  { text: "a\r\n\nb", end: 4 },
  { text: "a\n\r\nb", end: 4 },
  { text: "a\r\nb: c\r\n\r\n", end: 11 },
  { text: "a\r\nb", end: -1 },
  { text: "a\r\n\r", end: -1 },
  { text: "a\r\n", end: -1 },
  { text: "", end: -1 },
];

for (const { text, end } of ends) {
  Deno.test(`findHeadEnd() finds ${end} in ${JSON.stringify(text)}, however it came`, () => {
    const bytes = new TextEncoder().encode(text);
    assert.equal(findHeadEnd(bytes, 0, bytes.length), end);
    let found = -1;
    let from = 0;
    for (let to = 1; to <= bytes.length && found < 0; to++) {
      // What lies beyond `to` is left over from before and must not count.
      const buffer = new Uint8Array(bytes.length + 4).fill(0x0a);
      buffer.set(bytes.subarray(0, to));
      found = findHeadEnd(buffer, from, to);
      from = Math.max(0, to - 3);
    }
    assert.equal(found, end);
  });
}

interface Decoded {
  text: string;
  isComplete: boolean;
  mayEnd: boolean;
  surplusBytes: number;
}

/** Decodes with the bytes placed in the middle of a larger buffer, as a read places them. */
function decode(framing: BodyFraming, pieces: Uint8Array[]): Decoded {
  const decoder = new BodyDecoder(framing);
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
  Deno.test(`BodyDecoder takes ${name}, however it is cut`, () => {
    for (const pieces of everySplit(input)) {
      assert.deepEqual(decode(framing, pieces), expected);
    }
  });
}

const malformedBodies: { name: string; input: string }[] = [
  { name: "no size", input: "\r\nhello" },
  { name: "a size that is no number", input: "xyz\r\n" },
  { name: "a sign", input: "-5\r\nhello" },
  { name: "a prefix", input: "0x5\r\nhello" },
  { name: "a size of eight digits", input: "00000005\r\nhello" },
  { name: "a chunk longer than its size", input: "4\r\nhello\r\n" },
  { name: "a carriage return alone after the size", input: "5\rhello\n" },
  { name: "a carriage return alone after the data", input: "1\r\na\rb\n" },
  { name: "endless extensions", input: `1;${"x".repeat(17_000)}` },
  { name: "endless trailers", input: `0\r\n${"a: b\r\n".repeat(5_000)}` },
];

for (const { name, input } of malformedBodies) {
  Deno.test(`BodyDecoder refuses ${name}`, () => {
    const bytes = new TextEncoder().encode(input);
    const isRefusal = (error: unknown) =>
      error instanceof UpstreamError && error.fault === "invalid";
    assert.throws(() => decode(chunked, [bytes]), isRefusal);
    const single = Array.from(bytes, (byte) => Uint8Array.of(byte));
    assert.throws(() => decode(chunked, single), isRefusal);
  });
}

Deno.test("BodyDecoder leaves the payload of a single chunk where it is", () => {
  const buffer = new TextEncoder().encode("5\r\nhello\r\n");
  const payload = new BodyDecoder(chunked).decode(buffer, 0, buffer.length);
  assert.equal(payload.byteOffset, 3);
  assert.equal(payload.buffer, buffer.buffer);
});

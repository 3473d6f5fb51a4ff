import assert from "node:assert/strict";
import { UpstreamError } from "./errors.ts";
import {
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

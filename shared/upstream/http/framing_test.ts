/** Heads and bodies of HTTP answers. */
import assert from "node:assert/strict";
import { everySplit } from "./bytes_fixture.ts";
import {
  BodyDecoder,
  type BodyFraming,
  findHeadEnd,
  parseResponseHead,
  type ResponseHead,
} from "./framing.ts";

const usual: Omit<ResponseHead, "fields"> = {
  status: 200,
  framing: "close",
  isKeepAlive: true,
  contentType: "",
  contentEncoding: "",
  location: "",
  retryAfterMs: undefined,
  fileHeaders: {},
};

/** Lines after the status line, and what they change. */
const headers: [lines: string, head: Partial<ResponseHead>][] = [
  ["", {}],
  ["Content-Length: 12", { framing: 12 }],
  ["Content-Length: 0", { framing: 0 }],
  ["Transfer-Encoding:  Chunked ", { framing: "chunked" }],
  ["Transfer-Encoding: chunked\r\nContent-Length: 5", {
    framing: "chunked",
    isKeepAlive: false,
  }],
  ["Connection: Close", { isKeepAlive: false }],
  ["Content-Type: Text/Html; charset=utf-8", { contentType: "text/html" }],
  ["Content-Encoding: GZIP\r\nRetry-After-Ms: 2", { contentEncoding: "gzip" }],
  ['ETag: "A1"\r\nContent-Range: bytes 0-1/9\r\nLast-Modified: \u00e9', {
    fileHeaders: { "etag": '"A1"', "content-range": "bytes 0-1/9" },
  }],
  ["Content-Encoding: br\r\nETag: 1", { contentEncoding: "br" }],
  ["Location: https://A.test/", { location: "https://A.test/" }],
  ["x-a: \ufffd:\u0000\r\nx-b:", {}],
];

/** Whole heads of other kinds. */
const heads: [text: string, head: Partial<ResponseHead>][] = [
  ["HTTP/1.1 200\r\n\r\n", {}],
  ["HTTP/1.1 503 Busy\na: b\n\n", { status: 503 }],
  ["HTTP/1.1 204 None\r\ncontent-length: 5\r\n\r\n", {
    status: 204,
    framing: 0,
  }],
  ["HTTP/1.1 103 Early Hints\r\n\r\n", { status: 103, framing: 0 }],
  ["HTTP/1.0 200 OK\r\n\r\n", { isKeepAlive: false }],
  ["HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n", {}],
];

function withHeaders(lines: string, status = "200 OK"): string {
  return `HTTP/1.1 ${status}\r\n${lines}${lines === "" ? "" : "\r\n"}\r\n`;
}

Deno.test("parseResponseHead() reads heads as servers send them", () => {
  const all = [
    ...headers.map(([lines, head]) => [withHeaders(lines), head] as const),
    ...heads,
  ];
  for (const [text, head] of all) {
    const { fields: _, ...parsed } = parseResponseHead(text);
    assert.deepEqual(parsed, { ...usual, ...head }, text);
  }
});

const LATER = "Fri, 20 Nov 2026 11:00:09 GMT";
const waits: { retryAfter: string; retryAfterMs: string; waitMs?: number }[] = [
  { retryAfter: "", retryAfterMs: "" },
  { retryAfter: "1.5", retryAfterMs: "", waitMs: 1_500 },
  { retryAfter: "0", retryAfterMs: "", waitMs: 1_000 },
  { retryAfter: "60", retryAfterMs: "", waitMs: 60_000 },
  { retryAfter: "61", retryAfterMs: "", waitMs: 60_000 },
  { retryAfter: "-5", retryAfterMs: "" },
  { retryAfter: LATER, retryAfterMs: "" },
  {
    retryAfter: `${LATER}\r\ndate: Fri, 20 Nov 2026 11:00:02 GMT`,
    retryAfterMs: "",
    waitMs: 7_000,
  },
  { retryAfter: "7", retryAfterMs: "2500.4", waitMs: 2_501 },
  { retryAfter: "7", retryAfterMs: "x", waitMs: 7_000 },
  { retryAfter: "", retryAfterMs: "1", waitMs: 1_000 },
];

Deno.test("parseResponseHead() reads the wait from either header", () => {
  for (const { retryAfter, retryAfterMs, waitMs } of waits) {
    const lines =
      `retry-after: ${retryAfter}\r\nretry-after-ms: ${retryAfterMs}`;
    const head = parseResponseHead(withHeaders(lines, "429 Busy"));
    assert.equal(head.retryAfterMs, waitMs, lines);
  }
});

const INVALID = { fault: "invalid" };

Deno.test("parseResponseHead() refuses malformed heads", () => {
  const statusLines = [
    "",
    "ICY 200 OK",
    "HTTP/2 200 OK",
    "HTTP/1.1 20 OK",
    "HTTP/1.1 2000 OK",
  ];
  const headers = ["abc", ": a", "a b: c", "a : c", "a: b\r\n c: d"];
  const two = "1\r\ncontent-length: 2";
  const lengths = [two, "+1", "-1", "1, 1", "9".repeat(16)];
  const malformed = [
    ...statusLines.map((line) => `${line}\r\n\r\n`),
    ...headers.map((line) => withHeaders(line)),
    ...lengths.map((length) => withHeaders(`content-length: ${length}`)),
    withHeaders("transfer-encoding: gzip, chunked"),
  ];
  for (const text of malformed) {
    assert.throws(() => parseResponseHead(text), INVALID, text);
  }
});

const ends: [text: string, end: number][] = [
  ["a\r\n\r\nb", 5],
  ["a\n\nb", 3],
  ["a\r\n\nb", 4],
  ["a\n\r\nb", 4],
  ["a\r\nb: c\r\n\r\n", 11],
  ["a\r\nb", -1],
  ["a\r\n\r", -1],
  ["", -1],
];

Deno.test("findHeadEnd() finds the blank line, however it came", () => {
  for (const [text, end] of ends) {
    const bytes = new TextEncoder().encode(text);
    assert.equal(findHeadEnd(bytes, 0, bytes.length), end);
    for (let to = 1; to <= bytes.length; to++) {
      // What lies beyond `to` is left over from before and must not count.
      const buffer = new Uint8Array(bytes.length + 4).fill(0x0a);
      buffer.set(bytes.subarray(0, to));
      const isWhole = end >= 0 && end <= to;
      assert.equal(findHeadEnd(buffer, 0, to), isWhole ? end : -1, text);
    }
  }
});

/** A body as far as it was decoded. */
interface Decoded {
  text: string;
  isComplete: boolean;
  /** Bytes that came after its end. */
  surplusBytes: number;
}

/**
 * Decodes with the bytes placed in the middle of a larger buffer, as a read places
 * them.
 */
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
    surplusBytes += 3 + piece.length - decoder.usedTo;
  }
  return { text: out, isComplete: decoder.isComplete, surplusBytes };
}

const whole = { isComplete: true, surplusBytes: 0 };
const cut = { isComplete: false, surplusBytes: 0 };
const surplus = (surplusBytes: number) => ({ ...whole, surplusBytes });

const TEN = "0123456789";
interface Body {
  framing: BodyFraming;
  /** The bytes that come. */
  input: string;
  /** The text of the body. */
  text: string;
  state: Omit<Decoded, "text">;
}

const bodies: Body[] = [
  {
    framing: "chunked",
    input: "5\r\nhello\r\n0\r\n\r\n",
    text: "hello",
    state: whole,
  },
  {
    framing: "chunked",
    input: `1\r\na\r\nA\r\n${TEN}\r\n0\r\n\r\n`,
    text: `a${TEN}`,
    state: whole,
  },
  { framing: "chunked", input: "0\r\n\r\n", text: "", state: whole },
  {
    framing: "chunked",
    input: "5\r\n0\r\n\r\n\r\n0\r\n\r\n",
    text: "0\r\n\r\n",
    state: whole,
  },
  {
    framing: "chunked",
    input: "4\r\n😀\r\n3\r\n€\r\n0\r\n\r\n",
    text: "😀€",
    state: whole,
  },
  {
    framing: "chunked",
    input: "0005\r\nhello\r\n00\r\n\r\n",
    text: "hello",
    state: whole,
  },
  {
    framing: "chunked",
    input: '5;a="b"\r\nhello\r\n1 \r\n!\r\n0;x\r\n\r\n',
    text: "hello!",
    state: whole,
  },
  {
    framing: "chunked",
    input: "1\r\na\r\n0\r\nx: y\r\nz: w\r\n\r\n",
    text: "a",
    state: whole,
  },
  { framing: "chunked", input: "5\nhello\n0\n\n", text: "hello", state: whole },
  { framing: "chunked", input: "5\r\nhel", text: "hel", state: cut },
  { framing: "chunked", input: "5\r\nhello\r\n", text: "hello", state: cut },
  { framing: "chunked", input: "5\r\nhello\r\n1", text: "hello", state: cut },
  {
    framing: "chunked",
    input: "5\r\nhello\r\n0\r\n",
    text: "hello",
    state: cut,
  },
  {
    framing: "chunked",
    input: "1\r\na\r\n0\r\n\r\nHTTP",
    text: "a",
    state: surplus(4),
  },
  { framing: 5, input: "hello", text: "hello", state: whole },
  { framing: 6, input: "hello", text: "hello", state: cut },
  { framing: 3, input: "hello", text: "hel", state: surplus(2) },
  { framing: 0, input: "x", text: "", state: surplus(1) },
  { framing: "close", input: "hello", text: "hello", state: cut },
];

Deno.test("BodyDecoder takes bodies, however they are cut", () => {
  for (const { framing, input, text, state } of bodies) {
    for (const pieces of everySplit(input)) {
      assert.deepEqual(decode(framing, pieces), { text, ...state }, input);
    }
  }
});

Deno.test("BodyDecoder refuses malformed chunks", () => {
  const malformed = [
    "\r\nhello",
    "xyz\r\n",
    "-5\r\nhello",
    "0x5\r\nhello",
    "00000005\r\nhello",
    "4\r\nhello\r\n",
    "5\rhello\n",
    "1\r\na\rb\n",
    `1;${"x".repeat(17_000)}`,
    `0\r\n${"a: b\r\n".repeat(5_000)}`,
  ];
  for (const input of malformed) {
    const bytes = new TextEncoder().encode(input);
    assert.throws(() => decode("chunked", [bytes]), INVALID, input);
    const single = Array.from(bytes, (byte) => Uint8Array.of(byte));
    assert.throws(() => decode("chunked", single), INVALID, input);
  }
});

Deno.test("BodyDecoder leaves the payload of a single chunk where it is", () => {
  const buffer = new TextEncoder().encode("5\r\nhello\r\n");
  const payload = new BodyDecoder("chunked").decode(buffer, 0, buffer.length);
  assert.equal(payload.byteOffset, 3);
  assert.equal(payload.buffer, buffer.buffer);
});

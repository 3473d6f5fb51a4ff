import assert from "node:assert/strict";
import { RedisReplyError } from "./errors.ts";
import { encodeCommand, type RedisReply, ReplyReader } from "./resp.ts";

type Received = RedisReply | { error: string };

/** Reads pieces; a reply that is an error becomes its message. */
function read(pieces: Iterable<Uint8Array>): Received[] {
  const replies: Received[] = [];
  const reader = new ReplyReader((reply) =>
    replies.push(
      reply instanceof RedisReplyError ? { error: reply.message } : reply,
    )
  );
  for (const piece of pieces) reader.push(piece);
  return replies;
}

const bytesOf = (text: string) => new TextEncoder().encode(text);

const REPLIES: { name: string; text: string; replies: Received[] }[] = [
  { name: "a simple string", text: "+OK\r\n", replies: ["OK"] },
  { name: "an empty simple string", text: "+\r\n", replies: [""] },
  { name: "an error", text: "-ERR no\r\n", replies: [{ error: "ERR no" }] },
  { name: "integers", text: ":0\r\n:-7\r\n", replies: [0, -7] },
  { name: "a bulk string", text: "$5\r\na\r\nb\n\r\n", replies: ["a\r\nb\n"] },
  { name: "an empty bulk string", text: "$0\r\n\r\n", replies: [""] },
  { name: "UTF-8", text: "$7\r\n€😀\r\n", replies: ["€😀"] },
  { name: "nil", text: "$-1\r\n*-1\r\n", replies: [null, null] },
  { name: "an empty array", text: "*0\r\n", replies: [[]] },
  {
    name: "arrays in arrays",
    text: "*3\r\n*2\r\n:1\r\n*0\r\n$1\r\na\r\n*1\r\n*1\r\n$-1\r\n+OK\r\n",
    replies: [[[1, []], "a", [[null]]], "OK"],
  },
  {
    name: "an array with errors is the first of them, and what follows is read",
    text: "*3\r\n+OK\r\n*2\r\n-ERR one\r\n:1\r\n-ERR two\r\n:5\r\n",
    replies: [{ error: "ERR one" }, 5],
  },
];

for (const { name, text, replies } of REPLIES) {
  Deno.test(`ReplyReader reads ${name}, whole and however it is cut`, () => {
    const bytes = bytesOf(text);
    assert.deepEqual(read([bytes]), replies);
    const oneByOne = Array.from(bytes, (byte) => Uint8Array.of(byte));
    assert.deepEqual(read(oneByOne), replies);
    for (let cut = 1; cut < bytes.length; cut++) {
      const pieces = [bytes.subarray(0, cut), bytes.subarray(cut)];
      assert.deepEqual(read(pieces), replies, `cut at ${cut}`);
    }
    // The last reply does not come before its last byte.
    const early = read([bytes.subarray(0, -1)]);
    assert.deepEqual(early, replies.slice(0, -1));
  });
}

Deno.test("ReplyReader reads a large string in pieces without joining them each time", () => {
  const length = 32 * 1_024 * 1_024;
  const piece = new Uint8Array(16 * 1_024).fill(0x61);
  const head = bytesOf(`$${length}\r\n`);
  function* pieces() {
    yield head;
    for (let sent = 0; sent < length; sent += piece.length) yield piece;
    yield bytesOf("\r\n");
  }
  const [reply] = read(pieces());
  assert.equal(typeof reply === "string" && reply.length, length);
});

const NO_REPLIES = [
  "HTTP/1.1 400 Bad Request\r\n",
  "\r\n",
  "%1\r\n",
  ":\r\n",
  ":1.5\r\n",
  ":12345678901234567890\r\n",
  "$-2\r\n",
  "$x\r\n",
  "$536870913\r\n",
  "$1\r\nab\r\n",
  "*-2\r\n",
  "*1e3\r\n",
  `+${"a".repeat(70_000)}`,
];

for (const text of NO_REPLIES) {
  const shown = JSON.stringify(text.slice(0, 30));
  Deno.test(`ReplyReader refuses ${shown}`, () => {
    assert.throws(() => read([bytesOf(text)]), { name: "RedisProtocolError" });
  });
}

Deno.test("encodeCommand() counts bytes, not characters", () => {
  assert.equal(
    encodeCommand(["SET", "", "€\r\n"]),
    "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$5\r\n€\r\n\r\n",
  );
});

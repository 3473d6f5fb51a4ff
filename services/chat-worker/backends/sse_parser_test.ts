import assert from "node:assert/strict";
import { STREAM_LIMITS } from "@gateway/shared/limits";
import { SseParser } from "./sse_parser.ts";

const encoder = new TextEncoder();

interface Parsed {
  events: [data: string, name: string][];
  rest: string;
}

function parse(pieces: Iterable<Uint8Array>): Parsed {
  const events: Parsed["events"] = [];
  const parser = new SseParser((data, name) => void events.push([data, name]));
  for (const piece of pieces) {
    // The parser must not keep what it was given: overwrite it afterwards.
    const given = piece.slice();
    parser.push(given);
    given.fill(0x58);
  }
  return { events, rest: parser.end() };
}

function* byteByByte(bytes: Uint8Array): Iterable<Uint8Array> {
  for (let i = 0; i < bytes.length; i++) yield bytes.subarray(i, i + 1);
}

/** The bytes whole, byte by byte, and cut in two at every place. */
function* everySplit(bytes: Uint8Array): Iterable<Uint8Array[]> {
  yield [bytes];
  yield [...byteByByte(bytes)];
  for (let at = 0; at <= bytes.length; at++) {
    yield [bytes.subarray(0, at), bytes.subarray(at)];
  }
}

const cases: {
  name: string;
  input: string | Uint8Array;
  events: (string | [string, string])[];
  rest?: string;
}[] = [
  { name: "one event", input: 'data: {"a":1}\n\n', events: ['{"a":1}'] },
  { name: "two events", input: "data: 1\n\ndata: 2\n\n", events: ["1", "2"] },
  {
    name: "an error line, as one event of that name",
    input: 'data: 1\n\nerror: {"code":500}\n\ndata: 2\n\n',
    events: ["1", ['{"code":500}', "error"], "2"],
  },
  {
    name: "fields that only begin like an error",
    input: "errors: x\nerror_code: 5\n\n",
    events: [],
  },
  { name: "no space after the colon", input: "data:x\n\n", events: ["x"] },
  { name: "only one space goes", input: "data:  x \n\n", events: [" x "] },
  { name: "a tab stays", input: "data:\tx\n\n", events: ["\tx"] },
  { name: "a colon in the value", input: "data: a:b\n\n", events: ["a:b"] },
  { name: "CRLF", input: "data: 1\r\n\r\ndata: 2\r\n\r\n", events: ["1", "2"] },
  { name: "CR", input: "data: 1\r\rdata: 2\r\r", events: ["1", "2"] },
  {
    name: "mixed line ends",
    input: "data: 1\r\n\rdata: 2\n\r\ndata: 3\r\n\n",
    events: ["1", "2", "3"],
  },
  { name: "CR, then LF CR LF", input: "data: 1\r\n\r\n\r\n", events: ["1"] },
  {
    name: "several data lines",
    input: "data: a\ndata: b\n\n",
    events: ["a\nb"],
  },
  { name: "empty data", input: "data:\n\n", events: [""] },
  { name: "data with one space", input: "data: \n\n", events: [""] },
  { name: "field name alone", input: "data\n\n", events: [""] },
  { name: "two bare data lines", input: "data\ndata\n\n", events: ["\n"] },
  { name: "another field", input: "database: x\ndat: y\n\n", events: [] },
  { name: "a field with a space", input: " data: x\n\n", events: [] },
  {
    name: "comments",
    input: ": ping\n\n:\ndata: 1\n: in between\ndata: 2\n\n:x",
    events: ["1\n2"],
  },
  {
    name: "event, id and retry",
    input: "event: error\nid: 7\nretry: 10\ndata: x\n\ndata: y\n\n",
    events: [["x", "error"], "y"],
  },
  {
    name: "event without data",
    input: "event: ping\n\ndata: 1\n\n",
    events: ["1"],
  },
  {
    name: "the last event name counts",
    input: "event: a\nevent: b\ndata: 1\n\n",
    events: [["1", "b"]],
  },
  { name: "byte order mark", input: "\ufeffdata: 1\n\n", events: ["1"] },
  {
    name: "a mark later is text",
    input: "data: \ufeff1\n\n",
    events: ["\ufeff1"],
  },
  {
    name: "a mark on the second line",
    input: "\n\ufeffdata: 1\n\n",
    events: [],
  },
  { name: "a mark alone", input: "\ufeff", events: [] },
  { name: "blank lines", input: "\n\n\r\n\ndata: 1\n\n\n\n", events: ["1"] },
  { name: "long characters", input: "data: é€😀\n\n", events: ["é€😀"] },
  {
    name: "bytes that are not UTF-8",
    input: Uint8Array.of(...encoder.encode("data: a"), 0xff, 0xc3, 0x0a, 0x0a),
    events: ["a\ufffd\ufffd"],
  },
  {
    name: "no final blank line",
    input: "data: [DONE]\n",
    events: [],
    rest: "[DONE]",
  },
  {
    name: "no final line end",
    input: "data: [DONE]",
    events: [],
    rest: "[DONE]",
  },
  { name: "cut in a field name", input: "data: 1\n\ndat", events: ["1"] },
  { name: "nothing", input: "", events: [] },
];

for (const { name, input, events, rest } of cases) {
  Deno.test(`SseParser reads ${name}, however it is cut`, () => {
    const bytes = typeof input === "string" ? encoder.encode(input) : input;
    const expected: Parsed = {
      events: events.map((event) =>
        typeof event === "string" ? [event, ""] : event
      ),
      rest: rest ?? "",
    };
    for (const pieces of everySplit(bytes)) {
      assert.deepEqual(parse(pieces), expected);
    }
  });
}

const MAX = STREAM_LIMITS.lineBytesMax;
const HALF = MAX / 2;
/** `data: ` and the line that it begins. */
const line = (chars: number, char = "x") => `data: ${char.repeat(chars - 6)}\n`;
const bounds: [name: string, input: string, fits: boolean][] = [
  ["a line at", `${line(MAX)}\n`, true],
  ["a line above", line(MAX + 1), false],
  ["a comment above", `:${"x".repeat(MAX)}\n`, false],
  ["an endless line above", "x".repeat(MAX + 1), false],
  ["two-byte characters at", line(MAX, "é"), true],
  ["two-byte characters above", line(MAX + 1, "é"), false],
  ["joined data with its LF at", line(HALF + 6) + line(HALF + 5), true],
  ["joined data above", line(HALF + 6) + line(HALF + 6), false],
  ["empty data lines above", "data\n".repeat(MAX + 3), false],
  ["two events, each below", `${line(HALF + 9)}\n`.repeat(2), true],
];

for (const [name, input, fits] of bounds) {
  Deno.test(`SseParser ${fits ? "takes" : "refuses"} ${name} the bound`, () => {
    const bytes = encoder.encode(input);
    for (const pieces of [[bytes], [bytes.subarray(0, 9), bytes.subarray(9)]]) {
      if (fits) parse(pieces);
      else assert.throws(() => parse(pieces), { code: "upstream_invalid" });
    }
  });
}

Deno.test("SseParser needs time in proportion to the bytes, not to the pieces", () => {
  const bytes = encoder.encode(`${line(256 * 1024)}\n`);
  const startedAt = performance.now();
  const { events } = parse(byteByByte(bytes));
  // A copy of the pending line per piece would be 3e10 byte moves.
  assert.ok(performance.now() - startedAt < 5_000);
  assert.equal(events[0]?.[0].length, 256 * 1024 - 6);
});

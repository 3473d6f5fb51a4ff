import assert from "node:assert/strict";
import { threadMs } from "../../../tests/support/wait_for.ts";
import { STREAM_LIMITS } from "../../limits.ts";
import { everySplit, piecesOf } from "./bytes_fixture.ts";
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

type Event = string | [data: string, name: string];
const cases: [input: string | Uint8Array, events: Event[], rest?: string][] = [
  ['data: {"a":1}\n\n', ['{"a":1}']],
  ["data: 1\n\ndata: 2\n\n", ["1", "2"]],
  ["errors: x\nerror_code: 5\n\n", []],
  ["data:x\n\n", ["x"]],
  ["data:  x \n\n", [" x "]],
  ["data:\tx\n\n", ["\tx"]],
  ["data: a:b\n\n", ["a:b"]],
  ["data: 1\r\n\r\ndata: 2\r\n\r\n", ["1", "2"]],
  ["data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\n\n", ["1", "2", "3\r"]],
  ["data: 1\r\n\r\n\r\n", ["1"]],
  ["data: a\ndata: b\n\n", ["a\nb"]],
  ["data:\n\n", [""]],
  ["data: \n\n", [""]],
  ["data\n\n", [""]],
  ["data\ndata\n\n", ["\n"]],
  ["database: x\ndat: y\n\n", []],
  [" data: x\n\n", []],
  [": ping\n\n:\ndata: 1\n: in between\ndata: 2\n\n:x", ["1\n2"]],
  [
    "event: error\nid: 7\nretry: 10\ndata: x\n\ndata: y\n\n",
    [["x", "error"], "y"],
  ],
  ["event: ping\n\ndata: 1\n\n", ["1"]],
  ["event: a\nevent: b\ndata: 1\n\n", [["1", "b"]]],
  // A byte order mark counts at the very beginning only.
  ["\ufeffdata: 1\n\n", ["1"]],
  ["data: \ufeff1\n\n", ["\ufeff1"]],
  ["\n\ufeffdata: 1\n\n", []],
  ["\ufeff", []],
  ["\n\n\r\n\ndata: 1\n\n\n\n", ["1"]],
  ["data: é€😀\n\n", ["é€😀"]],
  [
    Uint8Array.of(...encoder.encode("data: a"), 0xff, 0xc3, 0x0a, 0x0a),
    ["a\ufffd\ufffd"],
  ],
  ["data: [DONE]\n", [], "[DONE]"],
  ["data: [DONE]", [], "[DONE]"],
  ["data: 1\n\ndat", ["1"]],
  ["", []],
];

Deno.test("SseParser reads events by the standard, however they are cut", () => {
  for (const [input, told, rest = ""] of cases) {
    const events = told.map((event) =>
      typeof event === "string" ? [event, ""] : event
    );
    for (const pieces of everySplit(input)) {
      assert.deepEqual(parse(pieces), { events, rest }, String(input));
    }
  }
});

const MIB = 1024 * 1024;
const MAX = STREAM_LIMITS.lineBytesMax;
const HALF = MAX / 2;
/** `data: ` and the line that it begins. */
const line = (chars: number, char = "x") => `data: ${char.repeat(chars - 6)}\n`;
const bounds: [name: string, input: string, fits: boolean][] = [
  ["a line at", `${line(MAX)}\n`, true],
  ["a comment above", `:${"x".repeat(MAX)}\n`, false],
  ["an endless line above", "x".repeat(MAX + 1), false],
  ["two-byte characters above", line(MAX + 1, "é"), false],
  ["joined data with its LF at", line(HALF + 6) + line(HALF + 5), true],
  ["joined data above", line(HALF + 6) + line(HALF + 6), false],
  ["two events, each below", `${line(HALF + 9)}\n`.repeat(2), true],
];

Deno.test("SseParser bounds lines and the data of events", () => {
  for (const [name, input, fits] of bounds) {
    const bytes = encoder.encode(input);
    for (const pieces of [[bytes], [bytes.subarray(0, 9), bytes.subarray(9)]]) {
      const run = () => void parse(pieces);
      if (fits) assert.doesNotThrow(run, name);
      else assert.throws(run, { code: "upstream_invalid" }, name);
    }
  }
});

Deno.test("SseParser needs time in proportion to the bytes, not to the pieces", () => {
  const bytes = encoder.encode(`${line(MIB)}\n`);
  const before = threadMs();
  const { events } = parse(piecesOf(bytes, 16));
  // A copy of the pending line per piece would be 3e10 byte moves.
  assert.ok(threadMs() - before < 5_000);
  assert.equal(events[0]?.[0].length, MIB - 6);
});

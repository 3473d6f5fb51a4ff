/** Server-sent events, however they are cut. */
import assert from "node:assert/strict";
import { threadMs } from "../../../tests/support/wait_for.ts";
import { STREAM_LIMITS } from "../../limits.ts";
import { everySplit, piecesOf } from "./bytes_fixture.ts";
import { SseParser } from "./sse_parser.ts";

const encoder = new TextEncoder();

interface ParsedEvents {
  events: [data: string, name: string][];
  rest: string;
}

function parse(pieces: Iterable<Uint8Array>): ParsedEvents {
  const events: ParsedEvents["events"] = [];
  const parser = new SseParser((data, name) => void events.push([data, name]));
  for (const piece of pieces) {
    // The parser must not keep what it was given: overwrite it afterwards.
    const copy = piece.slice();
    parser.push(copy);
    copy.fill(0x58);
  }
  return { events, rest: parser.end() };
}

type Event = string | [data: string, name: string];
const cases: { input: string | Uint8Array; events: Event[]; rest?: string }[] =
  [
    { input: 'data: {"a":1}\n\n', events: ['{"a":1}'] },
    { input: "data: 1\n\ndata: 2\n\n", events: ["1", "2"] },
    { input: "errors: x\nerror_code: 5\n\n", events: [] },
    { input: "data:x\n\n", events: ["x"] },
    { input: "data:  x \n\n", events: [" x "] },
    { input: "data:\tx\n\n", events: ["\tx"] },
    { input: "data: a:b\n\n", events: ["a:b"] },
    { input: "data: 1\r\n\r\ndata: 2\r\n\r\n", events: ["1", "2"] },
    {
      input: "data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\n\n",
      events: ["1", "2", "3\r"],
    },
    { input: "data: 1\r\n\r\n\r\n", events: ["1"] },
    { input: "data: a\ndata: b\n\n", events: ["a\nb"] },
    { input: "data:\n\n", events: [""] },
    { input: "data: \n\n", events: [""] },
    { input: "data\n\n", events: [""] },
    { input: "data\ndata\n\n", events: ["\n"] },
    { input: "database: x\ndat: y\n\n", events: [] },
    { input: " data: x\n\n", events: [] },
    {
      input: ": ping\n\n:\ndata: 1\n: in between\ndata: 2\n\n:x",
      events: ["1\n2"],
    },
    {
      input: "event: error\nid: 7\nretry: 10\ndata: x\n\ndata: y\n\n",
      events: [["x", "error"], "y"],
    },
    { input: "event: ping\n\ndata: 1\n\n", events: ["1"] },
    { input: "event: a\nevent: b\ndata: 1\n\n", events: [["1", "b"]] },
    // A byte order mark counts at the very beginning only.
    { input: "\ufeffdata: 1\n\n", events: ["1"] },
    { input: "data: \ufeff1\n\n", events: ["\ufeff1"] },
    { input: "\n\ufeffdata: 1\n\n", events: [] },
    { input: "\ufeff", events: [] },
    { input: "\n\n\r\n\ndata: 1\n\n\n\n", events: ["1"] },
    { input: "data: é€😀\n\n", events: ["é€😀"] },
    {
      input: Uint8Array.of(
        ...encoder.encode("data: a"),
        0xff,
        0xc3,
        0x0a,
        0x0a,
      ),
      events: ["a\ufffd\ufffd"],
    },
    { input: "data: [DONE]\n", events: [], rest: "[DONE]" },
    { input: "data: [DONE]", events: [], rest: "[DONE]" },
    { input: "data: 1\n\ndat", events: ["1"] },
    { input: "", events: [] },
  ];

Deno.test("SseParser reads events by the standard, however they are cut", () => {
  for (const { input, events, rest = "" } of cases) {
    const lines = events.map((event) =>
      typeof event === "string" ? [event, ""] : event
    );
    for (const pieces of everySplit(input)) {
      assert.deepEqual(
        parse(pieces),
        { events: lines, rest },
        String(input),
      );
    }
  }
});

const MIB = 1024 * 1024;
const MAX = STREAM_LIMITS.lineBytesMax;
const HALF = MAX / 2;
/** `data: ` and the line that it begins. */
const line = (chars: number, char = "x") => `data: ${char.repeat(chars - 6)}\n`;
const bounds: { name: string; input: string; fits: boolean }[] = [
  { name: "a line at", input: `${line(MAX)}\n`, fits: true },
  { name: "a comment above", input: `:${"x".repeat(MAX)}\n`, fits: false },
  { name: "an endless line above", input: "x".repeat(MAX + 1), fits: false },
  { name: "two-byte characters above", input: line(MAX + 1, "é"), fits: false },
  {
    name: "joined data with its LF at",
    input: line(HALF + 6) + line(HALF + 5),
    fits: true,
  },
  {
    name: "joined data above",
    input: line(HALF + 6) + line(HALF + 6),
    fits: false,
  },
  {
    name: "two events, each below",
    input: `${line(HALF + 9)}\n`.repeat(2),
    fits: true,
  },
];

Deno.test("SseParser bounds lines and the data of events", () => {
  for (const { name, input, fits } of bounds) {
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

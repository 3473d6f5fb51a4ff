/** Events that are forwarded, however they are cut. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { seededRandom, seedsOr } from "../../../tests/support/seeded_random.ts";
import { STREAM_LIMITS } from "../../limits.ts";
import type { ForwardName } from "../endpoints.ts";
import { EventTap } from "./event_tap.ts";

const encoder = new TextEncoder();
const data = (members: object) => `data: ${JSON.stringify(members)}\n\n`;
const delta = (type: string, name: string, text: string) =>
  `event: content_block_delta\n` +
  data({
    type: "content_block_delta",
    index: 0,
    delta: { type, [name]: text },
  });

/** The ends of a line and of a blank one. */
const ENDED = /(\r\n|\n|\r)(\r\n|\n|\r)$/;

Deno.test("any events pass to the byte, however they are cut, and never half of one", () => {
  const lineEnds = ["\n", "\r\n", "\r"];
  const lines = [
    "event: message_start",
    'data: {"type":"message_start","message":{"usage":{"input_tokens":1}}}',
    'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"é😀"}}',
    "data: [DONE]",
    'data: {"choices":[{"text":"a\\"]"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}',
    'data: {"type":"response.output_text.delta","delta":"',
    ": comment",
    "data",
    "data: \u0000",
    "id: 1",
  ];
  const names: ForwardName[] = ["messages", "responses", "completions"];
  let rounds = 0;
  for (const seed of seedsOr([1, 2, 3, 4, 5])) {
    const random = seededRandom(seed);
    const below = (bound: number) => Math.floor(random() * bound);
    const pick = <T>(list: readonly T[]): T =>
      list[below(list.length)] ?? assert.fail();
    for (let round = 0; round < 400; round++) {
      const events = Array.from({ length: below(8) }, () => {
        const body = Array.from({ length: 1 + below(3) }, () => pick(lines));
        const end = pick(lineEnds);
        // A CR and an LF would be one line end.
        const blank = end === "\r" ? end : pick(lineEnds);
        return body.map((line) => line + end).join("") + blank;
      });
      const whole = encoder.encode(events.join("") + pick(["", "data: cut"]));
      const tap = new EventTap(pick(names));
      const passed: Buffer[] = [];
      for (let at = 0; at < whole.length;) {
        const length = 1 + below(pick([2, 20, 200]));
        // The reader takes its buffer back after each read.
        const buffer = whole.slice(at, at + length);
        passed.push(Buffer.from(tap.push(buffer)));
        buffer.fill(0);
        at += length;
        const text = Buffer.concat(passed).toString();
        assert.ok(text === "" || ENDED.test(text), "half an event");
      }
      const bytes = Buffer.concat(passed);
      const cut = whole.length - bytes.length;
      assert.deepEqual(bytes, Buffer.from(whole.subarray(0, bytes.length)));
      assert.equal(tap.pendingBytes, cut);
      assert.ok(cut === 0 || cut === "data: cut".length, `${cut} bytes`);
      rounds += 1;
    }
  }
  assert.ok(rounds >= 400);
});

Deno.test("EventTap understands streams with any line ends, wherever they are cut", () => {
  const usage = { input_tokens: 2, output_tokens: 3 };
  const streams: { endpoint: ForwardName; text: string }[] = [
    {
      endpoint: "messages",
      text: data({ type: "message_start", message: { usage } }) +
        delta("text_delta", "text", "Hello") +
        `event: message_delta\n${data({ usage })}` +
        "event: message_stop\ndata: {}\n\n",
    },
    {
      endpoint: "responses",
      text: "event: response.output_text.delta\ndata: {\ndata: " +
        '"delta":"Hello"}\n\nevent: response.completed\n' +
        data({ response: { usage } }),
    },
    {
      endpoint: "completions",
      text: data({ choices: [{ text: "Hello" }] }) +
        data({ choices: [], usage }) + "data: [DONE]\n\n",
    },
  ];
  for (const { endpoint, text } of streams) {
    for (const end of ["\n", "\r\n", "\r"]) {
      const bytes = encoder.encode(text.replaceAll("\n", end));
      for (let at = 0; at < bytes.length; at++) {
        const tap = new EventTap(endpoint);
        const pieces = [bytes.slice(0, at), bytes.slice(at)];
        const passed = pieces.map((piece) => Buffer.from(tap.push(piece)));
        assert.deepEqual(Buffer.concat(passed), Buffer.from(bytes));
        assert.ok(tap.isFinished, `${endpoint} ${JSON.stringify(end)} ${at}`);
        const counts = [tap.usage?.total_tokens, tap.hasText];
        assert.deepEqual(counts, [5, true], `${endpoint} ${at}`);
      }
    }
  }
});

Deno.test("EventTap takes a last event without its blank line, unless it is cut", () => {
  const usage = { input_tokens: 2, output_tokens: 3 };
  const cases: { endpoint: ForwardName; begin: string; last: string }[] = [
    {
      endpoint: "completions",
      begin: data({ choices: [{ text: "a" }] }),
      last: "data: [DONE]",
    },
    {
      endpoint: "messages",
      begin: delta("text_delta", "text", "a"),
      last: 'event: message_stop\r\ndata: {"type":"message_stop"}\r\n',
    },
    {
      endpoint: "responses",
      begin: data({ type: "response.output_text.delta", delta: "a" }),
      last: data({ type: "response.completed", response: { usage } }).trim(),
    },
  ];
  for (const { endpoint, begin, last } of cases) {
    for (const length of [last.length, last.trim().length - 1]) {
      const tap = new EventTap(endpoint);
      const sent = encoder.encode(last.slice(0, length));
      tap.push(encoder.encode(begin));
      assert.equal(tap.push(sent).length, 0);
      const isWhole = length === last.length;
      const rest = Buffer.from(tap.end()).toString();
      const missing = last.endsWith("\n") ? "\n" : "\n\n";
      assert.equal(rest, isWhole ? last + missing : "");
      assert.equal(tap.isFinished, isWhole, last);
    }
  }
  const failing = new EventTap("messages");
  failing.push(encoder.encode('event: error\ndata: {"error":{}}'));
  assert.equal(failing.end().length, 0);
  assert.equal(failing.failure?.text, 'event: error\ndata: {"error":{}}\n\n');
});

Deno.test("EventTap is told nothing by line ends that only look like some", () => {
  const tap = new EventTap("messages");
  const text = "a\u2028event: error\u2028b\u0085event: message_stop";
  tap.push(encoder.encode(
    `id: 1\ndata: {"x":"${text}","type":"content_block_start"}\n\n`,
  ));
  assert.ok(tap.hasBegun && !tap.isFinished && tap.failure === null);
});

Deno.test("EventTap counts a token for each piece of text, and more for long ones", () => {
  const cases: { endpoint: ForwardName; event: string; tokens: number }[] = [
    {
      endpoint: "messages",
      event: delta("text_delta", "text", "Hello"),
      tokens: 1,
    },
    {
      endpoint: "messages",
      event: delta("thinking_delta", "thinking", "x".repeat(40)),
      tokens: 10,
    },
    {
      endpoint: "messages",
      event: delta("input_json_delta", "partial_json", '{"a":"'),
      tokens: 1,
    },
    { endpoint: "messages", event: delta("text_delta", "text", ""), tokens: 0 },
    {
      endpoint: "responses",
      event: data({ type: "response.output_text.delta", delta: 'a"b' }),
      tokens: 1,
    },
    {
      endpoint: "responses",
      event: data({ type: "response.x.delta", delta: { a: 1 } }),
      tokens: 0,
    },
    {
      endpoint: "completions",
      event: data({ choices: [{ text: "y".repeat(32) }] }),
      tokens: 8,
    },
  ];
  for (const { endpoint, event, tokens } of cases) {
    const tap = new EventTap(endpoint);
    tap.push(encoder.encode(event));
    assert.equal(tap.tokens, tokens, event);
    assert.ok(tap.hasBegun, event);
  }
});

Deno.test("EventTap believes the totals that a server states last", () => {
  const tap = new EventTap("messages");
  const start = {
    usage: { input_tokens: 5, cache_read_input_tokens: null, output_tokens: 1 },
  };
  tap.push(encoder.encode(data({ type: "message_start", message: start })));
  assert.equal(tap.hasBegun, false);
  tap.push(
    encoder.encode(
      data({ type: "message_delta", usage: { output_tokens: 4 } }),
    ),
  );
  tap.push(encoder.encode(data({
    type: "message_delta",
    usage: { input_tokens: 6, cache_read_input_tokens: 10, output_tokens: 9 },
  })));
  assert.deepEqual(tap.usage, {
    prompt_tokens: 16,
    completion_tokens: 9,
    total_tokens: 25,
    prompt_tokens_details: { cached_tokens: 10 },
  });
  assert.equal(tap.isFinished, false);
  tap.push(encoder.encode(data({ type: "message_stop" })));
  assert.equal(tap.isFinished, true);
});

Deno.test("EventTap takes time in proportion to the bytes of a long event, and bounds it", () => {
  const tap = new EventTap("responses");
  const piece = encoder.encode("x".repeat(64 * 1024));
  const pieces = STREAM_LIMITS.lineBytesMax / piece.length;
  tap.push(encoder.encode("data: "));
  for (let at = 1; at < pieces; at++) assert.equal(tap.push(piece).length, 0);
  assert.throws(() => tap.push(piece), RangeError);
});

Deno.test("EventTap finds the name of an event wherever it stands, and [DONE] is an end", () => {
  const cases: { endpoint: ForwardName; events: string[] }[] = [
    {
      endpoint: "messages",
      events: [
        'data: {"delta":{"text":"a","type":"text_delta"},"type":"content_block_delta"}\n\n',
        'data: {"type" : "message_stop"}\n\n',
      ],
    },
    {
      endpoint: "messages",
      events: [
        "id: 1\nevent: content_block_start\ndata: {}\n\n",
        "data: [DONE]\n\n",
      ],
    },
    {
      endpoint: "responses",
      events: [
        'data: {"item":{"type":"message"},"type":"response.output_item.added"}\n\n',
        'data: {"response":{"output":[{"type":"message"}],"usage":{"input_tokens":1,"output_tokens":2}},"type":"response.completed"}\n\n',
      ],
    },
    {
      endpoint: "responses",
      events: [
        'data: {"delta":"a","type":"response.output_text.delta"}\n\n',
        "data: [DONE]\n\n",
      ],
    },
  ];
  for (const { endpoint, events } of cases) {
    const tap = new EventTap(endpoint);
    const [first = "", last = ""] = events;
    tap.push(encoder.encode(first));
    assert.ok(tap.hasBegun && !tap.isFinished, first);
    tap.push(encoder.encode(last));
    assert.ok(tap.isFinished, last);
  }
  const empty = new EventTap("messages");
  empty.push(encoder.encode('data: {"type":"ping"}\n\ndata: [DONE]\n\n'));
  assert.ok(!empty.isFinished, "nothing was made");
});

Deno.test("EventTap knows an error without a type", () => {
  for (const endpoint of ["messages", "responses"] as const) {
    const tap = new EventTap(endpoint);
    tap.push(encoder.encode(data({ error: { message: "No" } })));
    assert.deepEqual(tap.failure?.data, { error: { message: "No" } });
  }
});

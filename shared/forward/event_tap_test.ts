import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { seededRandom, seedsOr } from "../../tests/support/seeded_random.ts";
import { STREAM_LIMITS } from "../limits.ts";
import type { ForwardName } from "./endpoints.ts";
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

Deno.test("any events pass to the byte, however they are cut, and never half of one", () => {
  const ends = ["\n\n", "\r\n\r\n", "\n\r\n"];
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
        return body.join(pick(["\n", "\r\n"])) + pick(ends);
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
        assert.ok(text === "" || /\n\r?\n$/.test(text), "half an event");
      }
      const bytes = Buffer.concat(passed);
      assert.deepEqual(bytes, Buffer.from(whole.subarray(0, bytes.length)));
      assert.equal(bytes.length + tap.pendingBytes, whole.length);
      rounds += 1;
    }
  }
  assert.ok(rounds >= 400);
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

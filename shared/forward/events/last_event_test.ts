/** The event that ends a forwarded stream. */
import assert from "node:assert/strict";
import type { ForwardName } from "../endpoints.ts";
import { LastEvent } from "./last_event.ts";

const encoder = new TextEncoder();

interface Case {
  readonly title: string;
  readonly endpoint: ForwardName;
  readonly text: string;
  readonly isFinal: boolean;
}

const STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n';
const DELTA = 'event: content_block_delta\ndata: {"type":"message_stop_x"}\n\n';
const COMPLETED = "event: response.completed\ndata: " +
  JSON.stringify({ type: "response.completed", output: "x".repeat(900) }) +
  "\n\n";

const CASES: readonly Case[] = [
  { title: "nothing", endpoint: "messages", text: "", isFinal: false },
  { title: "a delta", endpoint: "messages", text: DELTA, isFinal: false },
  {
    title: "a stop",
    endpoint: "messages",
    text: DELTA + STOP,
    isFinal: true,
  },
  {
    title: "a stop without its blank line",
    endpoint: "messages",
    text: DELTA + STOP.slice(0, -1),
    isFinal: false,
  },
  {
    title: "a delta after a stop",
    endpoint: "messages",
    text: STOP + DELTA,
    isFinal: false,
  },
  {
    title: "a stop with CRLF",
    endpoint: "messages",
    text: (DELTA + STOP).replaceAll("\n", "\r\n"),
    isFinal: true,
  },
  {
    title: "a stop with CR",
    endpoint: "messages",
    text: (DELTA + STOP).replaceAll("\n", "\r"),
    isFinal: true,
  },
  {
    title: "a stop without a name",
    endpoint: "messages",
    text: 'data: {"type": "message_stop"}\n\n',
    isFinal: true,
  },
  {
    title: "a text that speaks of a stop",
    endpoint: "messages",
    text: 'data: {"type":"delta","text":"\\"type\\":\\"message_stop\\""}\n\n',
    isFinal: false,
  },
  {
    title: "a long completed response",
    endpoint: "responses",
    text: COMPLETED,
    isFinal: true,
  },
  {
    title: "an incomplete response",
    endpoint: "responses",
    text: COMPLETED.replace("completed", "incomplete"),
    isFinal: true,
  },
  {
    title: "an item that is done",
    endpoint: "responses",
    text: "event: response.output_item.done\ndata: {}\n\n",
    isFinal: false,
  },
  {
    title: "the end of completions",
    endpoint: "completions",
    text: 'data: {"choices":[]}\n\ndata: [DONE]\n\n',
    isFinal: true,
  },
  {
    title: "a finish reason, after which usage may come",
    endpoint: "completions",
    text: 'data: {"choices":[{"finish_reason":"stop"}]}\n\n',
    isFinal: false,
  },
  {
    title: "an endpoint without streams",
    endpoint: "embeddings",
    text: "data: [DONE]\n\n",
    isFinal: false,
  },
];

for (const { title, endpoint, text, isFinal } of CASES) {
  Deno.test(`${title}: ${isFinal ? "the end" : "not the end"}`, () => {
    const whole = new LastEvent(endpoint);
    whole.push(encoder.encode(text));
    assert.equal(whole.isFinal, isFinal);
  });
}

Deno.test("a final event longer than a frame is the end once it is whole", () => {
  const bytes = encoder.encode(COMPLETED);
  for (let cut = COMPLETED.indexOf("\n"); cut < bytes.length; cut++) {
    const last = new LastEvent("responses");
    last.push(bytes.subarray(0, cut));
    assert.equal(last.isFinal, false);
    last.push(bytes.subarray(cut));
    // Nothing shows that a last piece of one byte is a blank line.
    assert.equal(last.isFinal, cut < bytes.length - 1, `cut at ${cut}`);
  }
});

Deno.test("comments after the end change nothing", () => {
  const last = new LastEvent("messages");
  for (const piece of [STOP, ": keep-alive\n\n", ": another\n\n"]) {
    last.push(encoder.encode(piece));
    assert.ok(last.isFinal);
  }
});

/** What reading a model server's stream costs: `deno bench bench/sse_parser_bench.ts` */
import { SseParser } from "../services/chat-worker/backends/sse_parser.ts";

/** A chunk as model servers send it for one token. */
const EVENT = `data: ${
  JSON.stringify({
    id: "chatcmpl-0123456789abcdef",
    object: "chat.completion.chunk",
    created: 1_767_622_290,
    model: "upstream-model",
    choices: [{
      index: 0,
      delta: { content: " Hello" },
      logprobs: null,
      finish_reason: null,
    }],
  })
}\n\n`;
const EVENTS = 64;
const encoder = new TextEncoder();
const one = encoder.encode(EVENT);
const many = encoder.encode(EVENT.repeat(EVENTS));
const crlf = encoder.encode(EVENT.replaceAll("\n", "\r\n").repeat(EVENTS));

const parser = new SseParser({
  lineCharsMax: 1024 * 1024,
  onEvent: () => {},
});

Deno.bench("one event in a read", () => parser.push(one));

Deno.bench("one event in two reads", () => {
  parser.push(one.subarray(0, 100));
  parser.push(one.subarray(100));
});

Deno.bench("64 events in a read", () => parser.push(many));

Deno.bench("64 events in a read, CRLF", () => parser.push(crlf));

/** Streams of events as servers of each dialect send them. */
import { chunk, streamHead } from "../support/model_servers/model_answers.ts";
import type { Step } from "../support/model_servers/scripted_server.ts";

/** An event as Anthropic's and OpenAI's servers send it. */
export const namedEvent = (type: string, members: object = {}) =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`;

/** The events of a message. */
export const MESSAGE = {
  start: namedEvent("message_start", {
    message: {
      id: "msg_1",
      model: "BAAI/bge-m3",
      usage: {
        input_tokens: 5,
        cache_read_input_tokens: 20,
        cache_creation_input_tokens: 3,
        output_tokens: 1,
      },
    },
  }),
  ping: 'event: ping\ndata: {"type": "ping"}\n\n',
  content: namedEvent("content_block_start", {
    index: 0,
    content_block: { type: "text", text: "" },
  }),
  text: (text: string) =>
    namedEvent("content_block_delta", {
      index: 0,
      delta: { type: "text_delta", text },
    }),
  end: namedEvent("content_block_stop", { index: 0 }) +
    namedEvent("message_delta", {
      delta: { stop_reason: "end_turn" },
      usage: { output_tokens: 7 },
    }) +
    namedEvent("message_stop"),
};
/** A whole message, with a ping and a comment among its events. */
export const WHOLE_MESSAGE = MESSAGE.start + MESSAGE.ping + MESSAGE.content +
  MESSAGE.text("Hé") + ": a comment\n\n" + MESSAGE.text("llo") + MESSAGE.end;

/** The events of a response. */
export const RESPONSE = {
  created: namedEvent("response.created", { response: { id: "resp_1" } }),
  text: (delta: string) => namedEvent("response.output_text.delta", { delta }),
  end: namedEvent("response.completed", {
    response: {
      id: "resp_1",
      usage: {
        input_tokens: 9,
        input_tokens_details: { cached_tokens: 4 },
        output_tokens: 3,
        output_tokens_details: { reasoning_tokens: 1 },
      },
    },
  }),
};
/** A whole response, with an event that nobody knows. */
export const WHOLE_RESPONSE = RESPONSE.created + RESPONSE.text("a") +
  'event: x.unknown\r\ndata: {"a":1.0}\r\n\r\n' + RESPONSE.end;

/** A chunk of a completion. */
export const completion = (text: string, more = "") =>
  `data: {"id":"c","choices":[{"text": ${
    JSON.stringify(text)
  },"index":0${more}}]}\n\n`;
/** A whole completion. */
export const WHOLE_COMPLETION = completion("Hel") +
  completion("lo", ',"finish_reason":"stop"') +
  'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":2}}\n\n' +
  "data: [DONE]\n\n";

/** What is asked in each dialect, the events that answer it, and what they cost. */
export const DIALECTS = [
  {
    path: "messages",
    body:
      '{"model":"talk","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"hi"}]}',
    events: WHOLE_MESSAGE,
    usage: {
      prompt_tokens: 28,
      completion_tokens: 7,
      total_tokens: 35,
      prompt_tokens_details: { cached_tokens: 20 },
    },
  },
  {
    path: "responses",
    body: '{"model":"talk","stream": true,"input":"hi","store":false}',
    events: WHOLE_RESPONSE,
    usage: {
      prompt_tokens: 9,
      completion_tokens: 3,
      total_tokens: 12,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 1 },
    },
  },
  {
    path: "completions",
    body: '{"model":"talk","stream":true,"prompt":"hi","suffix":"!"}',
    events: WHOLE_COMPLETION,
    usage: { prompt_tokens: 4, completion_tokens: 2, total_tokens: 6 },
  },
];

/** The head of a stream, and its events, each of these texts in a chunk of its own. */
export const stream = (...texts: string[]): Step[] => [
  streamHead({ headers: { "request-id": "theirs" } }),
  ...texts.map(chunk),
];

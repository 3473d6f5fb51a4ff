/** The answers of the model server of a run, encoded once. */
import { Buffer } from "node:buffer";
import * as modelAnswers from "../tests/support/model_servers/model_answers.ts";
import type { Step } from "../tests/support/model_servers/scripted_server.ts";
import { INPUT } from "./lanes.ts";

/** The answers of one endpoint. */
export interface Canned {
  whole: Uint8Array;
  /** The head of a stream, and the events before the first token. */
  start: Uint8Array;
  token: Uint8Array;
  /** The end of a stream; `isCounted`: the usage was asked for. */
  end(isCounted: boolean): Uint8Array;
}

const bytesOf = (...steps: Iterable<Step>[]): Uint8Array =>
  Buffer.concat(
    steps.flatMap((some) => [...some])
      .map((step) => Buffer.from("send" in step ? step.send : "")),
  );
const event = (data: unknown) => [modelAnswers.chunk(modelAnswers.event(data))];
const namedEvent = (data: { type: string; [member: string]: unknown }) => [
  modelAnswers.chunk(
    `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`,
  ),
];
const head = [modelAnswers.streamHead()];
const last = [modelAnswers.lastChunk];

const TEXT = "Of course. What can I do for you?";
const WORD = " word";

function ofChat(): Canned {
  const reply = modelAnswers.chatReply({ words: [TEXT] });
  const stop = event(modelAnswers.choiceChunk({}, "stop"));
  const usage = event(modelAnswers.usageChunk(20, 9));
  const done = [...event("[DONE]"), ...last];
  return {
    whole: bytesOf(reply({ json: () => ({}) })),
    start: bytesOf(head),
    token: bytesOf(event(modelAnswers.choiceChunk({ content: WORD }))),
    end: (isCounted) => bytesOf(stop, isCounted ? usage : [], done),
  };
}

function ofMessages(): Canned {
  const usage = { input_tokens: 20, output_tokens: 9 };
  const message = {
    id: "msg_1",
    type: "message",
    role: "assistant",
    model: "theirs",
    content: [{ type: "text", text: TEXT }],
    stop_reason: "end_turn",
    stop_sequence: null,
    usage,
  };
  const firstMessage = { ...message, content: [], stop_reason: null };
  const block = { type: "text", text: "" };
  const end = bytesOf(
    namedEvent({ type: "content_block_stop", index: 0 }),
    namedEvent({
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage,
    }),
    namedEvent({ type: "message_stop" }),
    last,
  );
  return {
    whole: bytesOf(modelAnswers.jsonResponse(message)),
    start: bytesOf(
      head,
      namedEvent({ type: "message_start", message: firstMessage }),
      namedEvent({
        type: "content_block_start",
        index: 0,
        content_block: block,
      }),
    ),
    token: bytesOf(namedEvent({
      type: "content_block_delta",
      index: 0,
      delta: { type: "text_delta", text: WORD },
    })),
    end: () => end,
  };
}

function ofResponses(): Canned {
  const content = [{ type: "output_text", text: TEXT, annotations: [] }];
  const item = { type: "message", id: "msg_1", role: "assistant" };
  const done = { ...item, status: "completed", content };
  const about = {
    id: "resp_1",
    object: "response",
    created_at: 1_767_622_290,
    model: "theirs",
    status: "completed",
    output: [done],
  };
  const usage = { input_tokens: 20, output_tokens: 9, total_tokens: 29 };
  const response = { ...about, usage };
  const place = { item_id: "msg_1", output_index: 0, content_index: 0 };
  const firstResponse = { ...about, status: "in_progress", output: [] };
  const end = bytesOf(
    namedEvent({
      type: "response.output_item.done",
      output_index: 0,
      item: done,
    }),
    namedEvent({ type: "response.completed", response }),
    last,
  );
  return {
    whole: bytesOf(modelAnswers.jsonResponse(response)),
    start: bytesOf(
      head,
      namedEvent({ type: "response.created", response: firstResponse }),
      namedEvent({ type: "response.output_item.added", output_index: 0, item }),
    ),
    token: bytesOf(namedEvent({
      type: "response.output_text.delta",
      ...place,
      delta: WORD,
    })),
    end: () => end,
  };
}

const DIMENSIONS = 1_536;
/** Numbers as models make them, of about eleven characters. */
const VECTOR = Float32Array.from(
  { length: DIMENSIONS },
  (_, index) => Math.sin(index) / 32,
);
const AS_FLOAT = JSON.stringify(
  [...VECTOR].map((each) => Number(each.toPrecision(8))),
);
const AS_BASE64 = JSON.stringify(
  Buffer.from(VECTOR.buffer).toString("base64"),
);

const vectorAnswers = new Map<string, Uint8Array>();

/** As many vectors as the request has inputs, in the form that it asks for. */
function vectorsFor(body: string): Uint8Array {
  const count = body.split(INPUT).length - 1;
  const embedding = body.includes('"base64"') ? AS_BASE64 : AS_FLOAT;
  const key = `${count} ${embedding.length}`;
  const cached = vectorAnswers.get(key);
  if (cached !== undefined) return cached;
  const data = Array.from(
    { length: count },
    (_, index) =>
      `{"object":"embedding","index":${index},"embedding":${embedding}}`,
  );
  const text = `{"object":"list","data":[${data}],"model":"theirs",` +
    `"usage":{"prompt_tokens":${2 * count},"total_tokens":${2 * count}}}`;
  const answer = bytesOf(modelAnswers.jsonResponse(text));
  vectorAnswers.set(key, answer);
  return answer;
}

const CHAT = ofChat();
const BY_PATH: { readonly [path: string]: Canned } = {
  "/v1/messages": ofMessages(),
  "/v1/responses": ofResponses(),
};

/** The answers to a request, by its path. */
export function cannedFor(path: string, body: string): Canned {
  if (path !== "/v1/embeddings") return BY_PATH[path] ?? CHAT;
  return { ...CHAT, whole: vectorsFor(body) };
}

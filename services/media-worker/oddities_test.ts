// What is undone or skipped in answers about images and audio is counted by its kind,
// and what cannot be read fails in the same kinds as in a chat.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { gzipSync } from "node:zlib";
import type { MediaRequest } from "@gateway/shared/openai/media";
import type { Oddity } from "@gateway/shared/upstream/oddities";
import {
  chunk,
  event,
  head,
  jsonResponse,
  lastChunk,
  typed,
} from "../../tests/support/model_servers/model_answers.ts";
import {
  noProgress,
  recordContext,
} from "../../tests/support/model_servers/recorded_context.ts";
import type { Step } from "../../tests/support/model_servers/scripted_server.ts";
import {
  eventsIn,
  IMAGE,
  namedEvent,
  partly,
  SPEECH,
  SSE,
  sse,
  startServer,
  TRANSCRIPTION,
} from "./server_fixture.ts";

const PNG = "iVBORw0KGgo=";
const pictures = { data: [{ b64_json: PNG }] };
const completed = namedEvent({
  type: "image_generation.completed",
  b64_json: PNG,
});
const step = namedEvent({
  type: "image_generation.step",
  step: 3,
  url: "http://a",
});
const sound = namedEvent({ type: "speech.audio.delta", audio: "AAAA" });
const spoken = namedEvent({ type: "speech.audio.done" });
const heard = namedEvent({ type: "transcript.text.done", text: "Hi" });
const compressed = gzipSync(JSON.stringify({ text: "Hi" }));
const mp3: Step[] = [typed("audio/mpeg"), chunk("a"), lastChunk];

interface Case {
  name: string;
  request: MediaRequest;
  reply: Iterable<Step>;
  oddities: Partial<Record<Oddity, number>>;
}

const CASES: Case[] = [
  {
    name: "an image",
    request: IMAGE,
    reply: jsonResponse(pictures),
    oddities: {},
  },
  {
    name: "a whole image where no partial one was asked for",
    request: { ...IMAGE, ...SSE },
    reply: jsonResponse(pictures),
    oddities: {},
  },
  {
    name: "a whole image in place of events",
    request: partly(1),
    reply: jsonResponse(pictures),
    oddities: { form_converted: 1 },
  },
  {
    name: "events and a ping for a client that asked for a document",
    request: IMAGE,
    reply: sse(step, namedEvent({ type: "ping" }), completed),
    oddities: { event_skipped: 2 },
  },
  {
    name: "a ping among the events of an image",
    request: partly(1),
    reply: sse(namedEvent({ type: "ping" }), step, completed),
    oddities: { event_skipped: 1 },
  },
  { name: "sound", request: SPEECH, reply: mp3, oddities: {} },
  {
    name: "sound in place of events",
    request: { ...SPEECH, ...SSE },
    reply: mp3,
    oddities: { form_converted: 1 },
  },
  {
    name: "events in place of sound",
    request: SPEECH,
    reply: sse(sound, namedEvent({ type: "x" }), spoken),
    oddities: { form_converted: 1, event_skipped: 1 },
  },
  {
    name: "a transcription",
    request: TRANSCRIPTION,
    reply: jsonResponse({ text: "Hi" }),
    oddities: {},
  },
  {
    name: "text in place of JSON",
    request: TRANSCRIPTION,
    reply: [typed("text/plain"), chunk("Hi"), lastChunk],
    oddities: { form_converted: 1 },
  },
  {
    name: "events in place of a transcription",
    request: TRANSCRIPTION,
    reply: sse(heard),
    oddities: { form_converted: 1 },
  },
  {
    name: "a compressed transcription",
    request: TRANSCRIPTION,
    reply: [
      head(
        "200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip" +
          `\r\ncontent-length: ${compressed.length}`,
        compressed,
      ),
    ],
    oddities: { coding_unasked: 1 },
  },
];

/** Runs a request, and says what was odd and what the client got. */
async function run(request: MediaRequest, reply: Iterable<Step>) {
  await using r = startServer(() => reply);
  const progress = noProgress();
  const counted: Partial<Record<Oddity, number>> = {};
  progress.onOddity = (oddity, count) => {
    counted[oddity] = (counted[oddity] ?? 0) + count;
  };
  const files = [
    { field: "file", name: "a", type: "", content: Buffer.alloc(16_000) },
  ];
  const answer = await r.run(request, recordContext({ files }), progress);
  return { ...answer, counted };
}

for (const { name, request, reply, oddities } of CASES) {
  Deno.test(`a media-worker counts what is odd about ${name}`, async () => {
    const { error, counted } = await run(request, reply);
    assert.equal(error, null);
    assert.deepEqual(counted, oddities);
  });
}

Deno.test("events that OpenAI does not have reach a client of events, without addresses", async () => {
  const { text } = await run(partly(1), sse(step, completed));
  const [first, second] = eventsIn(text);
  assert.deepEqual(first, { type: "image_generation.step", step: 3 });
  assert.equal(second?.type, "image_generation.completed");
});

Deno.test("the tokens of an image may stand beside it, in the names of chat", async () => {
  const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
  const reply = jsonResponse({ data: [{ b64_json: PNG, usage }] });
  const { text } = await run({ ...IMAGE, ...SSE }, reply);
  assert.deepEqual(eventsIn(text)[0]?.usage, {
    input_tokens: 3,
    output_tokens: 4,
    ...usage,
  });
});

const counted: Step[] = [
  head(
    "200 OK\r\ncontent-type: audio/mpeg\r\nX-VLLM-OMNI-NUM-TOKENS-IN: 3\r\n" +
      "X-VLLM-OMNI-NUM-TOKENS-OUT: 4\r\nX-VLLM-OMNI-TOTAL-TOKENS: 7\r\n" +
      "x-ratelimit-remaining-tokens: 9\r\nx-other-tokens: a\r\n" +
      "content-length: 1",
    "a",
  ),
];

Deno.test("tokens in headers reach a client of sound as headers, and one of events as usage", async () => {
  const { head } = await run(SPEECH, counted);
  assert.deepEqual(head?.headers, {
    "x-vllm-omni-num-tokens-in": "3",
    "x-vllm-omni-num-tokens-out": "4",
    "x-vllm-omni-total-tokens": "7",
  });
  const { text } = await run({ ...SPEECH, ...SSE }, counted);
  assert.deepEqual(eventsIn(text).at(-1)?.usage, {
    input_tokens: 3,
    output_tokens: 4,
    total_tokens: 7,
  });
});

Deno.test("the tokens of a transcription in the form of a chat reach the client at its end", async () => {
  const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
  const reply = sse(
    event({ choices: [{ delta: { content: "Hi" } }] }),
    event({ choices: [], usage }),
    event("[DONE]"),
  );
  const { text, counted } = await run({ ...TRANSCRIPTION, ...SSE }, reply);
  const events = eventsIn(text);
  assert.deepEqual(events.map(({ type }) => type), [
    "transcript.text.delta",
    "transcript.text.done",
  ]);
  assert.partialDeepStrictEqual(events[1], {
    text: "Hi",
    usage: { type: "tokens", input_tokens: 3, output_tokens: 4 },
  });
  assert.deepEqual(counted, { form_converted: 1 });
});

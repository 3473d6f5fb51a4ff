/** Transcriptions: what a server is asked, and what is made of its answers. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type * as media from "@gateway/shared/openai/media";
import type { Step } from "../../tests/support/model_servers/scripted_server.ts";
import {
  event,
  head,
  jsonResponse,
} from "../../tests/support/model_servers/model_answers.ts";
import { recordContext } from "../../tests/support/model_servers/recorded_context.ts";
import {
  eventsIn,
  formOf,
  namedEvent,
  SSE,
  sse,
  startServer,
  TRANSCRIPTION,
} from "./server_fixture.ts";

/** Two seconds by its size. */
const FILE = {
  field: "file",
  name: 'a"b.mp3',
  type: "audio/mpeg",
  content: new Uint8Array(16_000),
};
/** Half a second of silence, by its head. */
const WAV = Buffer.concat([
  Buffer.from("RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0", "latin1"),
  Buffer.from([0x40, 0x1f, 0, 0, 0x80, 0x3e, 0, 0, 2, 0, 16, 0]),
  Buffer.from("data\0\0\0\0", "latin1"),
  Buffer.alloc(8_000),
]);

async function transcribe(
  reply: Iterable<Step>,
  change: Partial<media.TranscriptionRequest> = {},
  content = FILE.content,
) {
  await using r = startServer(() => reply);
  const context = recordContext({ files: [{ ...FILE, content }] });
  const answer = await r.run({ ...TRANSCRIPTION, ...change }, context);
  assert.equal(answer.error, null);
  const [request] = r.peer.requests;
  assert.ok(request);
  return { ...answer, request };
}

const text = (type: string, body: string): Step[] => [
  head(
    `200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${body.length}`,
    body,
  ),
];
const hi = jsonResponse({ text: "Hi" });
const DELTA = "transcript.text.delta";
const HI = ["H", "i"];
const deltas = HI.map((delta) => namedEvent({ type: DELTA, delta }));
const done = (more: object) =>
  namedEvent({ type: "transcript.text.done", ...more });
const VERBOSE = { format: "verbose_json" };
const TEXT = { format: "text" };
const VTT = { format: "vtt" };
const two = { type: "duration", seconds: 2 };
const five = { type: "duration", seconds: 5 };

Deno.test("a server is sent a form with the model first and the file last; for events, JSON is requested", async () => {
  const { request } = await transcribe(hi, {
    task: "translate",
    fields: {
      prompt: "Grüße",
      temperature: "0.5",
      "known_speaker_names[]": ["Ann", "Bob"],
      vad_filter: "True",
    },
    stream: true,
    ...VTT,
  });
  assert.equal(
    `${request.method} ${request.path}`,
    "POST /v1/audio/translations",
  );
  assert.match(request.body, new RegExp("\0{16000}"));
  assert.deepEqual(await formOf(request), [
    ["model", "theirs"],
    ["response_format", "json"],
    ["prompt", "Grüße"],
    ["temperature", "0.5"],
    ["known_speaker_names[]", "Ann"],
    ["known_speaker_names[]", "Bob"],
    ["vad_filter", "True"],
    ["stream", "true"],
    ["file", "audio/mpeg", "a%22b.mp3"],
  ]);
  const plain = await transcribe(hi, VTT);
  assert.deepEqual((await formOf(plain.request))[1], [
    "response_format",
    "vtt",
  ]);
});

const JSON_TYPE = "application/json";
const verbose = (duration: unknown) => jsonResponse({ text: "Hi", duration });
const hiInEvents = sse(...deltas, done({ text: "Hi" }), event("[DONE]"));
interface Document {
  name: string;
  reply: Step[];
  /** Fields of the request. */
  change: Partial<media.TranscriptionRequest>;
  type: string;
  body: unknown;
}

const documents: Document[] = [
  {
    name: "JSON without usage",
    reply: hi,
    change: {},
    type: JSON_TYPE,
    body: { text: "Hi", usage: two },
  },
  {
    name: "verbose JSON, whose length counts",
    reply: verbose(4.2),
    change: VERBOSE,
    type: JSON_TYPE,
    body: {
      text: "Hi",
      duration: 4.2,
      usage: five,
    },
  },
  {
    name: "verbose JSON, whose length is a text",
    reply: verbose("4.2"),
    change: VERBOSE,
    type: JSON_TYPE,
    body: {
      text: "Hi",
      duration: "4.2",
      usage: five,
    },
  },
  {
    name: "JSON with a length that no recording has",
    reply: verbose(1e15),
    change: {},
    type: JSON_TYPE,
    body: {
      text: "Hi",
      duration: 1e15,
      usage: two,
    },
  },
  {
    name: "a text instead of JSON",
    reply: text("text/plain", "Hi"),
    change: {},
    type: JSON_TYPE,
    body: {
      text: "Hi",
      usage: two,
    },
  },
  {
    name: "JSON instead of a text",
    reply: hi,
    change: TEXT,
    type: "text/plain",
    body: "Hi",
  },
  {
    name: "subtitles",
    reply: text("text/vtt", "WEBVTT\n"),
    change: VTT,
    type: "text/vtt",
    body: "WEBVTT\n",
  },
  {
    name: "silence",
    reply: jsonResponse({ text: "" }),
    change: TEXT,
    type: "text/plain",
    body: "",
  },
  {
    name: "events",
    reply: hiInEvents,
    change: {},
    type: JSON_TYPE,
    body: { text: "Hi", usage: two },
  },
];

for (const { name, reply, change, type, body } of documents) {
  Deno.test(`a transcription is made of ${name}`, async () => {
    const answer = await transcribe(reply, change);
    assert.equal(answer.type, `${type}; charset=utf-8`);
    const isJson = type.endsWith("json");
    assert.deepEqual(isJson ? JSON.parse(answer.text) : answer.text, body);
    assert.equal(answer.units, change === VERBOSE ? 5 : 2);
  });
}

/** vLLM's events are like those of a chat, those of speaches have no type. */
const ofVllm = HI.map((content) =>
  event({
    id: "t1",
    object: "transcription.chunk",
    model: "theirs",
    choices: [{ delta: { content }, finish_reason: null }],
  })
);
const ofSpeaches = HI.map((text) => event({ text }));
const tokens = { type: "tokens", total_tokens: 9 };
interface Stream {
  name: string;
  reply: Step[];
  usage: object;
  /** The pieces of the text that a client gets. */
  deltas: readonly string[];
}

const streams: Stream[] = [
  {
    name: "events",
    reply: sse(...deltas, done({ text: "Hi", usage: tokens })),
    usage: tokens,
    deltas: HI,
  },
  {
    name: "events that say little",
    reply: sse(...deltas, done({})),
    usage: two,
    deltas: HI,
  },
  { name: "a whole transcription", reply: hi, usage: two, deltas: ["Hi"] },
  {
    name: "vLLM's events",
    reply: sse(...ofVllm, event("[DONE]")),
    usage: two,
    deltas: HI,
  },
  {
    name: "the events of speaches",
    reply: sse(...ofSpeaches),
    usage: two,
    deltas: HI,
  },
];

for (const { name, reply, usage, deltas } of streams) {
  Deno.test(`events, or a document, are made of ${name}`, async () => {
    const stream = await transcribe(reply, SSE);
    assert.deepEqual(eventsIn(stream.text), [
      ...deltas.map((delta) => ({ type: DELTA, delta })),
      { type: "transcript.text.done", text: "Hi", usage },
    ]);
    const whole = await transcribe(reply);
    assert.deepEqual(JSON.parse(whole.text), { text: "Hi", usage });
    assert.equal(whole.units, 2);
  });
}

/** The members of an answer that say how long a recording is, and what is charged. */
const lengths: { says: object; seconds: number }[] = [
  { says: { duration: 4.2 }, seconds: 5 },
  { says: { usage: { type: "duration", seconds: 7 } }, seconds: 7 },
  {
    says: { usage: { type: "tokens", total_tokens: 9 }, duration: 3 },
    seconds: 3,
  },
  { says: { usage: { prompt_audio_seconds: 6 } }, seconds: 6 },
  { says: { segments: [{ end: 1 }, { end: 8.5 }] }, seconds: 9 },
  { says: { duration: 2, segments: [{ end: 3 }] }, seconds: 3 },
  { says: { duration: -1 }, seconds: 2 },
  { says: { duration: "soon", segments: [null] }, seconds: 2 },
];

Deno.test("a recording is charged the largest length that its answer states", async () => {
  for (const { says, seconds } of lengths) {
    const { units } = await transcribe(jsonResponse({ text: "Hi", ...says }));
    assert.equal(units, seconds, JSON.stringify(says));
  }
});

Deno.test("a WAV file says how long it is", async () => {
  // Players ignore the rate of bytes in the head, so it may claim anything.
  const long = Buffer.concat([WAV, Buffer.alloc(152_000)]);
  long.writeUInt32LE(0xffffffff, 28);
  const junk = Buffer.from(long).fill("JUNK", 12, 16);
  const mp3 = Buffer.from(long).fill(0x55, 20, 21).fill(0xff, 34, 36);
  const raw = Buffer.from(long).fill("\xfe\xff", 20, 22, "latin1");
  raw[44] = 1;
  const all = new Map([[WAV, 1], [long, 11], [raw, 11], [junk, 21], [mp3, 21]]);
  for (const [content, seconds] of all) {
    const { units } = await transcribe(hi, {}, new Uint8Array(content));
    assert.equal(units, seconds);
  }
});

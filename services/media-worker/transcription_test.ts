import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { TranscriptionRequest } from "@gateway/shared/openai/media";
import type { Step } from "../../tests/support/fake_model_server.ts";
import { event, jsonResponse } from "../../tests/support/model_answers.ts";
import {
  API_KEY,
  eventsIn,
  formOf,
  head,
  named,
  recordCall,
  SSE,
  sse,
  startServer,
  TRANSCRIPTION,
} from "./server_fixture.ts";

/** Two seconds by its size. */
const FILE = {
  ...{ field: "file", name: 'a"b.mp3', type: "audio/mpeg" },
  content: new Uint8Array(16_000),
};
/** Half a second of silence, by its head. */
const WAV = Buffer.concat([
  Buffer.from("RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0", "latin1"),
  Buffer.from([0x40, 0x1f, 0, 0, 0x80, 0x3e, 0, 0, 2, 0, 16, 0]),
  Buffer.from("data\0\0\0\0", "latin1"),
  Buffer.alloc(8_000),
]);

/** What the client gets of an answer, and what the server was asked. */
async function transcribe(
  reply: Iterable<Step>,
  change: Partial<TranscriptionRequest> = {},
  content = FILE.content,
) {
  await using r = startServer(() => reply);
  const call = recordCall({ files: [{ ...FILE, content }] });
  const answer = await r.run({ ...TRANSCRIPTION, ...change }, call);
  assert.equal(answer.error, null);
  const [asked] = r.fake.requests;
  assert.ok(asked);
  return { ...answer, asked };
}

const text = (type: string, body: string): Step[] => [
  head(
    `200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${body.length}`,
    body,
  ),
];
const hi = jsonResponse({ text: "Hi" });
const DELTA = "transcript.text.delta";
const deltas = ["H", "i"].map((delta) => named({ type: DELTA, delta }));
const done = (more: object) => named({ type: "transcript.text.done", ...more });
const two = { type: "duration", seconds: 2 };
const five = { type: "duration", seconds: 5 };

Deno.test("a server is sent a form with the model first and the file last; for events, JSON is requested", async () => {
  const { asked } = await transcribe(hi, {
    ...{ task: "translate", language: "de", prompt: "Grüße", temperature: 0.5 },
    ...{ timestamp_granularities: ["word", "segment"], stream: true },
    response_format: "vtt",
  });
  assert.equal(`${asked.method} ${asked.path}`, "POST /v1/audio/translations");
  assert.equal(asked.headers.get("authorization"), `Bearer ${API_KEY}`);
  assert.match(asked.body, new RegExp("\0{16000}"));
  assert.deepEqual(await formOf(asked), [
    ["model", "theirs"],
    ["language", "de"],
    ["prompt", "Grüße"],
    ["response_format", "json"],
    ["temperature", "0.5"],
    ["stream", "true"],
    ["timestamp_granularities[]", "word"],
    ["timestamp_granularities[]", "segment"],
    ["file", "audio/mpeg", "a%22b.mp3"],
  ]);
  const plain = await transcribe(hi, { response_format: "vtt" });
  assert.deepEqual((await formOf(plain.asked))[1], ["response_format", "vtt"]);
});

const verbose = { response_format: "verbose_json" } as const;
const documents: [
  name: string,
  reply: Step[],
  change: Partial<TranscriptionRequest>,
  type: string,
  body: unknown,
][] = [
  ["JSON without usage", hi, {}, "application/json", {
    text: "Hi",
    usage: two,
  }],
  [
    "verbose JSON, whose length counts",
    jsonResponse({ text: "Hi", duration: 4.2, words: [] }),
    ...[verbose, "application/json"] as const,
    { text: "Hi", duration: 4.2, words: [], usage: five },
  ],
  [
    "vLLM's verbose JSON, whose length is a text",
    jsonResponse({ text: "Hi", duration: "4.2" }),
    ...[verbose, "application/json"] as const,
    { text: "Hi", duration: "4.2", usage: five },
  ],
  ["a text instead of JSON", text("text/plain", "Hi"), {}, "application/json", {
    ...{ text: "Hi", usage: two },
  }],
  [
    ...["JSON instead of a text", hi, { response_format: "text" }] as const,
    ...["text/plain", "Hi"] as const,
  ],
  [
    ...["subtitles", text("text/vtt", "WEBVTT\n")] as const,
    ...[{ response_format: "vtt" }, "text/vtt", "WEBVTT\n"] as const,
  ],
  [
    ...["silence", jsonResponse({ text: "" })] as const,
    ...[{ response_format: "text" }, "text/plain", ""] as const,
  ],
  [
    ...[
      "events",
      sse(...deltas, done({ text: "Hi" }), event("[DONE]")),
    ] as const,
    ...[{}, "application/json", { text: "Hi", usage: two }] as const,
  ],
];

for (const [name, reply, change, type, body] of documents) {
  Deno.test(`a transcription is made of ${name}`, async () => {
    const answer = await transcribe(reply, change);
    assert.equal(answer.type, `${type}; charset=utf-8`);
    const isJson = type.endsWith("json");
    assert.deepEqual(isJson ? JSON.parse(answer.text) : answer.text, body);
    assert.equal(answer.made, change === verbose ? 5 : 2);
  });
}

/** vLLM's events are like those of a chat, those of speaches have no type. */
const ofVllm = ["H", "i"].map((content) =>
  event({
    ...{ id: "t1", object: "transcription.chunk", model: "theirs" },
    choices: [{ delta: { content }, finish_reason: null }],
  })
);
const ofSpeaches = ["H", "i"].map((text) => event({ text }));
const tokens = { type: "tokens", total_tokens: 9 };
const streams: [
  name: string,
  reply: Step[],
  usage: object,
  said: readonly string[],
][] = [
  [
    ...["events", sse(...deltas, done({ text: "Hi", usage: tokens }))] as const,
    ...[tokens, ["H", "i"]] as const,
  ],
  ["events that say little", sse(...deltas, done({})), two, ["H", "i"]],
  ["a whole transcription", hi, two, ["Hi"]],
  ["vLLM's events", sse(...ofVllm, event("[DONE]")), two, ["H", "i"]],
  ["the events of speaches", sse(...ofSpeaches), two, ["H", "i"]],
];

for (const [name, reply, usage, said] of streams) {
  Deno.test(`events, or a document, are made of ${name}`, async () => {
    const stream = await transcribe(reply, SSE);
    assert.deepEqual(eventsIn(stream.text), [
      ...said.map((delta) => ({ type: DELTA, delta })),
      { type: "transcript.text.done", text: "Hi", usage },
    ]);
    const whole = await transcribe(reply);
    assert.deepEqual(JSON.parse(whole.text), { text: "Hi", usage });
    assert.equal(whole.made, 2);
  });
}

Deno.test("a WAV file says how long it is", async () => {
  // Players ignore the rate of bytes in the head, so it may claim anything.
  const claims = Buffer.concat([WAV, Buffer.alloc(152_000)]);
  claims.writeUInt32LE(0xffffffff, 28);
  const padded = Buffer.from(claims);
  padded.write("JUNK", 12, "latin1");
  const rows = [[WAV, 1], [claims, 11], [padded, 21]] as const;
  for (const [content, seconds] of rows) {
    const { made } = await transcribe(hi, {}, new Uint8Array(content));
    assert.equal(made, seconds);
  }
});

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { SpeechRequest } from "@gateway/shared/openai/media";
import type { Step } from "../../tests/support/fake_model_server.ts";
import { chunk, event, lastChunk } from "../../tests/support/model_answers.ts";
import {
  API_KEY,
  CHARACTERS,
  CLOSE,
  eventsIn,
  head,
  named,
  SPEECH,
  SSE,
  sse,
  startServer,
  typed,
} from "./server_fixture.ts";

const SOUND = Buffer.from([0, 255, 10, 13, 10, 200, 1, 2, 3]);
const [FIRST, REST] = [SOUND.subarray(0, 4), SOUND.subarray(4)];
const delta = (sound: Uint8Array) =>
  named({ type: "speech.audio.delta", audio: sound.toBase64(), format: "pcm" });
const done = (more: object) => named({ type: "speech.audio.done", ...more });
const usage = { input_tokens: 5, output_tokens: 7, total_tokens: 12 };

Deno.test("a server is sent what the client chose, and always the format", async () => {
  const { kind: _kind, stream: _stream, ...rest } = SPEECH;
  const plain = { ...rest, model: "theirs" };
  const members = { stream_format_field: "stream_format" } as const;
  const sung = { response_format: "wav", speed: 0.5 } as const;
  const pcm = { response_format: "pcm" } as const;
  const rows: [
    change: Partial<SpeechRequest>,
    members: Partial<BackendConfig>,
    sent: object,
  ][] = [
    [{ ...sung, instructions: "Sing" }, members, {
      ...{ ...plain, ...sung, instructions: "Sing" },
    }],
    [SSE, {}, { ...plain, stream_format: "sse" }],
    [{ speed: 1 }, members, { ...plain, speed: 1 }],
    [pcm, {}, { ...plain, ...pcm }],
    [pcm, members, { ...plain, ...pcm, stream_format: "audio" }],
  ];
  for (const [change, members, sent] of rows) {
    await using r = startServer(() => [head("200 OK", "x"), CLOSE], {
      members,
    });
    await r.run({ ...SPEECH, ...change });
    const request = await r.fake.request(1);
    assert.equal(`${request.method} ${request.path}`, "POST /v1/audio/speech");
    assert.equal(request.headers.get("authorization"), `Bearer ${API_KEY}`);
    assert.equal(request.headers.get("x-request-id"), "req1");
    assert.deepEqual(request.json(), sent);
  }
});

const sounds: [name: string, reply: Step[]][] = [
  ["in pieces", [typed("audio/wav"), chunk(FIRST), chunk(REST), lastChunk]],
  ["with its length", [head("200 OK\r\ncontent-length: 9", SOUND)]],
  ["up to the end of the connection", [head("200 OK", SOUND), CLOSE]],
  ["in events", sse(delta(FIRST), delta(REST), done({ usage }))],
];

for (const [name, reply] of sounds) {
  Deno.test(`sound ${name} is passed on as it is, or in events`, async () => {
    await using r = startServer(() => reply);
    const whole = await r.run(SPEECH);
    assert.equal(whole.error, null);
    assert.equal(whole.type, "audio/mpeg");
    assert.deepEqual(whole.body, SOUND);
    assert.equal(whole.made, CHARACTERS);
    const stream = await r.run({ ...SPEECH, ...SSE });
    assert.equal(stream.error, null);
    assert.equal(stream.type, "text/event-stream");
    const events = eventsIn(stream.text);
    assert.equal(events.pop()?.type, "speech.audio.done");
    const deltas = events.map(({ audio }) =>
      Buffer.from(String(audio), "base64")
    );
    assert.deepEqual(Buffer.concat(deltas), SOUND);
    assert.equal(stream.made, CHARACTERS);
  });
}

Deno.test("the media type follows the format, whatever the server says", async () => {
  await using r = startServer(() => [
    head("200 OK\r\ncontent-length: 1\r\ncontent-type: audio/x", "x"),
  ]);
  for (const format of ["opus", "aac", "flac", "wav", "pcm"] as const) {
    const { type } = await r.run({ ...SPEECH, response_format: format });
    assert.equal(type, `audio/${format}`);
  }
});

/** The last events of servers, and the usage that a client gets. */
const estimated = { input_tokens: 3, output_tokens: 0, total_tokens: 3 };
const detailed = { ...usage, input_token_details: {} };
const dones: [server: string, last: string[], usage: object][] = [
  ["vLLM-Omni", [done({ usage: detailed })], detailed],
  ["speaches", [done({ token_usage: usage })], usage],
  ["StepFun", [done({ audio: "" }), event("[DONE]")], estimated],
];

for (const [server, last, expected] of dones) {
  Deno.test(`the events of ${server} become OpenAI's`, async () => {
    await using r = startServer(() => sse(": ping\n\n", delta(SOUND), ...last));
    const { text, error } = await r.run({ ...SPEECH, ...SSE });
    assert.equal(error, null);
    assert.deepEqual(eventsIn(text), [
      { type: "speech.audio.delta", audio: SOUND.toBase64() },
      { type: "speech.audio.done", usage: expected },
    ]);
  });
}

/** Speech: what a server is asked, and what is made of its sound and its events. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type * as media from "@gateway/shared/openai/media";
import type { Step } from "../../tests/support/model_servers/scripted_server.ts";
import {
  chunk,
  CLOSE,
  event,
  head,
  lastChunk,
  typed,
} from "../../tests/support/model_servers/model_answers.ts";
import { recordContext } from "../../tests/support/model_servers/recorded_context.ts";
import {
  CHARACTERS,
  eventsIn,
  namedEvent,
  SPEECH,
  SSE,
  sse,
  startServer,
} from "./server_fixture.ts";

const SOUND = Buffer.from([0, 255, 10, 13, 10, 200, 1, 2, 3]);
const [FIRST, REST] = [SOUND.subarray(0, 4), SOUND.subarray(4)];
const delta = (sound: Uint8Array) =>
  namedEvent({
    type: "speech.audio.delta",
    audio: sound.toBase64(),
    format: "pcm",
  });
const spokenDone = (more: object) =>
  namedEvent({ type: "speech.audio.done", ...more });
const usage = { input_tokens: 5, output_tokens: 7, total_tokens: 12 };

Deno.test("a server is sent what the client chose, and always the format", async () => {
  const { input, fields } = SPEECH;
  const plain = { model: "theirs", input, response_format: "mp3", ...fields };
  const members = { stream_format_field: "stream_format" } as const;
  const sung = { speed: "0.5", instructions: "Sing", x: [{ y: null }] };
  const pcm = { format: "pcm" };
  const inPcm = { ...plain, response_format: "pcm" };
  const rows: {
    change: Partial<media.SpeechRequest>;
    members: Partial<BackendConfig>;
    body: object;
  }[] = [
    {
      change: { ...pcm, fields: sung },
      members,
      body: {
        model: "theirs",
        input,
        response_format: "pcm",
        ...sung,
      },
    },
    { change: SSE, members: {}, body: { ...plain, stream_format: "sse" } },
    { change: pcm, members: {}, body: inPcm },
    { change: pcm, members, body: { ...inPcm, stream_format: "audio" } },
  ];
  for (const { change, members, body } of rows) {
    await using r = startServer(() => [head("200 OK", "x"), CLOSE], members);
    await r.run({ ...SPEECH, ...change });
    const request = await r.peer.request(1);
    assert.equal(`${request.method} ${request.path}`, "POST /v1/audio/speech");
    assert.deepEqual(request.json(), body);
  }
});

const sounds: [name: string, reply: Step[]][] = [
  ["in pieces", [typed("audio/wav"), chunk(FIRST), chunk(REST), lastChunk]],
  ["with its length", [head("200 OK\r\ncontent-length: 9", SOUND)]],
  ["up to the end of the connection", [head("200 OK", SOUND), CLOSE]],
  ["in events", sse(delta(FIRST), delta(REST), spokenDone({ usage }))],
];

for (const [name, reply] of sounds) {
  Deno.test(`sound ${name} is passed on as it is, or in events`, async () => {
    await using r = startServer(() => reply);
    const whole = await r.run(SPEECH);
    assert.equal(whole.error, null);
    assert.equal(whole.type, "audio/mpeg");
    assert.deepEqual(whole.body, SOUND);
    assert.equal(whole.units, CHARACTERS);
    const stream = await r.run({ ...SPEECH, ...SSE });
    assert.equal(stream.error, null);
    assert.equal(stream.type, "text/event-stream");
    const events = eventsIn(stream.text);
    assert.equal(events.pop()?.type, "speech.audio.done");
    const deltas = events.map(({ audio }) =>
      Buffer.from(String(audio), "base64")
    );
    assert.deepEqual(Buffer.concat(deltas), SOUND);
    assert.equal(stream.units, CHARACTERS);
  });
}

Deno.test("the media type follows the format, whatever the server says", async () => {
  await using r = startServer(() => [
    head("200 OK\r\ncontent-length: 1\r\ncontent-type: audio/x", "x"),
  ]);
  for (const format of ["opus", "aac", "flac", "wav", "pcm"] as const) {
    const { type } = await r.run({ ...SPEECH, format });
    assert.equal(type, `audio/${format}`);
  }
  const { type } = await r.run({ ...SPEECH, format: "m4a" });
  assert.equal(type, "audio/x", "a format that only the server knows");
});

/** The last events of servers, and the usage that a client gets. */
const estimated = { input_tokens: 3, output_tokens: 0, total_tokens: 3 };
const detailed = { ...usage, input_token_details: {} };
interface Done {
  server: string;
  last: string[];
  /** The usage that a client gets. */
  expected: object;
  /** What else is passed on. */
  more?: object;
}

const dones: Done[] = [
  {
    server: "vLLM-Omni",
    last: [spokenDone({ usage: detailed })],
    expected: detailed,
  },
  {
    server: "speaches",
    last: [spokenDone({ token_usage: usage })],
    expected: usage,
  },
  {
    server: "StepFun",
    last: [spokenDone({ audio: "" }), event("[DONE]")],
    expected: estimated,
    more: {
      audio: "",
    },
  },
];

for (const { server, last, expected, more } of dones) {
  Deno.test(`the events of ${server} become OpenAI's`, async () => {
    await using r = startServer(() => sse(": ping\n\n", delta(SOUND), ...last));
    const { text, error } = await r.run({ ...SPEECH, ...SSE });
    assert.equal(error, null);
    assert.deepEqual(eventsIn(text), [
      { type: "speech.audio.delta", audio: SOUND.toBase64(), format: "pcm" },
      { type: "speech.audio.done", usage: expected, ...more },
    ]);
  });
}

Deno.test("events that are no JSON are skipped between good ones, and counted", async () => {
  const noise = [event("ping"), event(": keepalive"), event("null")];
  await using r = startServer(() =>
    sse(...noise, delta(SOUND), ...noise, spokenDone({}))
  );
  const counts: unknown[] = [];
  const progress = {
    hasSent: false,
    onBegun: () => {},
    onOddity: (...oddity: unknown[]) => void counts.push(oddity),
  };
  const { error, body } = await r.run(SPEECH, recordContext(), progress);
  assert.equal(error, null);
  assert.deepEqual(body, SOUND);
  assert.deepEqual(counts, [["form_converted", 1], ["event_skipped", 6]]);
});

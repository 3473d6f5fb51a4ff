import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type {
  BackendConfig,
  BackendDeadlines,
} from "@gateway/shared/models/catalog";
import type { SpeechRequest } from "@gateway/shared/openai/media";
import type { Step } from "../../tests/support/fake_model_server.ts";
import {
  chunk,
  event,
  jsonResponse,
  lastChunk,
  streamHead,
} from "../../tests/support/model_answers.ts";
import {
  API_KEY,
  assertFault,
  CHARACTERS,
  CLOSE,
  eventsIn,
  head,
  named,
  REDIRECT,
  run,
  speechWith,
  STALL,
  startEngine,
} from "./engine_fixture.ts";

const SSE = { stream: true } as const;
const SOUND = Buffer.from([0, 255, 10, 13, 10, 200, 1, 2, 3]);
const FIRST = SOUND.subarray(0, 4);
const REST = SOUND.subarray(4);

const typed = (type: string): Step =>
  streamHead({ headers: { "content-type": type } });
const delta = (sound: Uint8Array, more: object = {}) =>
  named({ type: "speech.audio.delta", audio: sound.toBase64(), ...more });
const done = (more: object = {}) =>
  named({ type: "speech.audio.done", ...more });
const usage = { input_tokens: 5, output_tokens: 7, total_tokens: 12 };
const sse = (...events: string[]) => [
  streamHead(),
  ...events.map(chunk),
  lastChunk,
];
/** The first bytes, in a packet of their own. */
const begun: Step[] = [typed("audio/mpeg"), chunk(FIRST), { pauseMs: 20 }];
const begunEvents: Step[] = [streamHead(), chunk(delta(FIRST)), {
  pauseMs: 20,
}];

Deno.test("an engine is sent what the client chose, and always the format", async () => {
  const plain = {
    model: "theirs",
    input: "Grüße 😀",
    voice: "alloy",
    response_format: "mp3",
  };
  const member = { stream_format_field: "stream_format" } as const;
  const rows: [
    change: Partial<SpeechRequest>,
    members: Partial<BackendConfig>,
    sent: object,
  ][] = [
    [{}, {}, plain],
    [
      { response_format: "wav", speed: 0.5, instructions: "Sing" },
      member,
      { ...plain, response_format: "wav", speed: 0.5, instructions: "Sing" },
    ],
    [SSE, {}, { ...plain, stream_format: "sse" }],
    [{ speed: 1 }, member, { ...plain, speed: 1 }],
    [{ response_format: "pcm" }, {}, { ...plain, response_format: "pcm" }],
    [
      { response_format: "pcm" },
      member,
      { ...plain, response_format: "pcm", stream_format: "audio" },
    ],
  ];
  for (const [change, members, sent] of rows) {
    await using r = startEngine(() => [head("200 OK", "x"), CLOSE], {
      members,
    });
    await run(r.engine, speechWith(change));
    const request = await r.server.request(1);
    assert.equal(`${request.method} ${request.path}`, "POST /v1/audio/speech");
    assert.equal(request.headers.get("authorization"), `Bearer ${API_KEY}`);
    assert.equal(request.headers.get("x-request-id"), "req1");
    assert.deepEqual(request.json(), sent);
  }
});

const sounds: [name: string, reply: Step[]][] = [
  ["in pieces", [typed("audio/mpeg"), chunk(FIRST), chunk(REST), lastChunk]],
  ["with its length", [head("200 OK\r\ncontent-length: 9", SOUND)]],
  ["up to the end of the connection", [head("200 OK", SOUND), CLOSE]],
  ["of another type", [typed("audio/wav"), chunk(SOUND), lastChunk]],
  ["of no type", [typed("application/octet-stream"), chunk(SOUND), lastChunk]],
  ["in events", sse(delta(FIRST), delta(REST), done({ usage }))],
];

for (const [name, reply] of sounds) {
  Deno.test(`sound ${name} is passed on as it is, or in events`, async () => {
    await using r = startEngine(() => reply);
    const whole = await run(r.engine, speechWith());
    assert.equal(whole.error, null);
    assert.equal(whole.type, "audio/mpeg");
    assert.deepEqual(whole.body, SOUND);
    assert.equal(whole.made, CHARACTERS);
    const stream = await run(r.engine, speechWith(SSE));
    assert.equal(stream.error, null);
    assert.equal(stream.type, "text/event-stream");
    const events = eventsIn(stream.text).map((each) => ({ ...Object(each) }));
    assert.equal(events.at(-1).type, "speech.audio.done");
    const deltas = events.slice(0, -1).map(({ audio }) =>
      Buffer.from(audio, "base64")
    );
    assert.deepEqual(Buffer.concat(deltas), SOUND);
    assert.equal(stream.made, CHARACTERS);
  });
}

Deno.test("the media type follows the format", async () => {
  const types = {
    mp3: "audio/mpeg",
    opus: "audio/opus",
    aac: "audio/aac",
    flac: "audio/flac",
    wav: "audio/wav",
    pcm: "audio/pcm",
  } as const;
  await using r = startEngine(() => [head("200 OK\r\ncontent-length: 1", "x")]);
  for (const format of ["mp3", "opus", "aac", "flac", "wav", "pcm"] as const) {
    const { type } = await run(
      r.engine,
      speechWith({ response_format: format }),
    );
    assert.equal(type, types[format]);
  }
});

/** The last events of servers, and the usage that a client gets. */
const dones: [server: string, last: string[], usage: object][] = [
  ["vLLM-Omni", [done({ usage: { ...usage, input_token_details: {} } })], {
    ...usage,
    input_token_details: {},
  }],
  ["speaches", [done({ token_usage: usage })], usage],
  ["StepFun", [done({ audio: "" }), event("[DONE]")], {
    input_tokens: 3,
    output_tokens: 0,
    total_tokens: 3,
  }],
];

for (const [server, last, expected] of dones) {
  Deno.test(`the events of ${server} become OpenAI's`, async () => {
    const first = delta(SOUND, { response_format: "pcm" });
    await using r = startEngine(() => sse(": ping\n\n", first, ...last));
    const { text, error } = await run(r.engine, speechWith(SSE));
    assert.equal(error, null);
    assert.deepEqual(eventsIn(text), [
      { type: "speech.audio.delta", audio: SOUND.toBase64() },
      { type: "speech.audio.done", usage: expected },
    ]);
  });
}

type Failure = [
  name: string,
  reply: Iterable<Step>,
  more?: {
    /** What was passed on before. */
    sound?: Uint8Array;
    deadlines?: Partial<BackendDeadlines>;
    change?: Partial<SpeechRequest>;
    message?: RegExp;
  },
];
const AFTER = { sound: FIRST };
const PATIENCE = { first_token_ms: 50, between_tokens_ms: 5_000 };
const IMPATIENCE = { first_token_ms: 5_000, between_tokens_ms: 50 };
function* endlessSound(): Iterable<Step> {
  yield typed("audio/mpeg");
  for (;;) {
    yield { pauseMs: 10 };
    yield chunk(FIRST);
  }
}
function* endlessEvent(): Iterable<Step> {
  yield streamHead();
  yield chunk('data: {"type":"speech.audio.delta","audio":"');
  for (;;) yield chunk("A".repeat(1024 * 1024));
}
const withDetail = (error: string, message: string) =>
  jsonResponse({ detail: { error, message, type: "x" } }, { status: 400 });
const error = { message: `No GPU for ${API_KEY}`, code: 500 };

const failures: { [fault: string]: Failure[] } = {
  request: [
    [
      "Kokoro's refusal of a voice",
      withDetail("validation_error", "Voice 'x' not found"),
      { message: /^Voice 'x' not found$/ },
    ],
    [
      "a refusal by FastAPI",
      jsonResponse({ detail: [{ loc: ["body", "speed"], msg: "Too fast" }] }, {
        status: 422,
      }),
      { message: /^speed: Too fast$/ },
    ],
  ],
  unknown_model: [[
    "Kokoro's refusal of the model",
    withDetail("invalid_model", "Unsupported model: theirs"),
  ]],
  credentials: [[
    "a refusal of the key",
    jsonResponse({ error }, { status: 401 }),
  ]],
  overloaded: [[
    "a busy server",
    jsonResponse({ detail: "Full" }, { status: 503 }),
  ]],
  server_error: [
    ["a redirect", [REDIRECT]],
    ["an error with status 200", jsonResponse({ error }), {
      message: /^No GPU for \[redacted\]$/,
    }],
    [
      "vLLM-Omni's error event",
      sse(delta(FIRST), named({ type: "speech.audio.error", error })),
      AFTER,
    ],
    [
      "an error event without a sound before",
      sse(named({ type: "error", message: "No GPU" })),
    ],
  ],
  invalid: [
    ["a page", [typed("text/html"), chunk("<html>"), lastChunk]],
    ["a text", [typed("text/plain"), chunk("Sorry"), lastChunk]],
    ["JSON without sound", jsonResponse({ ok: true })],
    ["compressed sound", [
      streamHead({ headers: { "content-encoding": "gzip" } }),
    ]],
    ["garbage instead of HTTP", [{ send: "\0\xff garbage\r\n\r\n" }]],
    ["an event that is not JSON", sse(event("garbage"))],
    ["an event beyond the bound", endlessEvent()],
    [
      "sound that is not base64",
      sse(delta(FIRST), delta(REST, { audio: "*" })),
      AFTER,
    ],
    [
      "a chunk of a wrong length",
      [...begun, { send: "2\r\nabcdef\r\n" }],
      AFTER,
    ],
  ],
  unreachable: [["a hang-up", [CLOSE]]],
  truncated: [
    ["no sound", [typed("audio/mpeg"), lastChunk]],
    ["no sound in events", sse(done({ usage }))],
    ["sound that is cut", [...begun, CLOSE], AFTER],
    ["less sound than announced", [head("200 OK\r\ncontent-length: 9", FIRST), {
      pauseMs: 20,
    }, CLOSE], AFTER],
    ["events that are cut", [
      ...begunEvents,
      chunk(delta(REST).slice(0, 40)),
      CLOSE,
    ], AFTER],
    ["events without a last one", sse(delta(FIRST)), AFTER],
    [
      "events that end with [DONE] only",
      sse(delta(FIRST), event("[DONE]")),
      AFTER,
    ],
  ],
  timeout: [
    ["no answer", [STALL], { deadlines: PATIENCE }],
    ["no sound after the head", [typed("audio/mpeg"), STALL], {
      deadlines: PATIENCE,
    }],
    ["nothing but comments", [
      streamHead(),
      ...Array.from(
        { length: 50 },
        (): Step[] => [chunk(": ping\n\n"), { pauseMs: 10 }],
      ).flat(),
    ], { deadlines: PATIENCE }],
    ["sound that stalls", [...begun, STALL], {
      ...AFTER,
      deadlines: IMPATIENCE,
    }],
    ["events that stall", [...begunEvents, STALL], {
      ...AFTER,
      deadlines: IMPATIENCE,
    }],
  ],
  deadline: [["sound without end", endlessSound(), {
    deadlines: { total_ms: 150 },
  }]],
};

for (const [fault, cases] of Object.entries(failures)) {
  for (const [name, reply, more = {}] of cases) {
    Deno.test(`speech fails with ${fault} for ${name}`, async () => {
      await using r = startEngine(() => reply, more);
      const { error, body, made } = await run(r.engine, speechWith());
      const failure = await assertFault(error, fault, r);
      assert.match(failure.message, more.message ?? /./);
      if (fault === "deadline") return assert.equal(made, CHARACTERS);
      assert.deepEqual(body, Buffer.from(more.sound ?? []));
      assert.equal(made, more.sound === undefined ? 0 : CHARACTERS);
    });
  }
}

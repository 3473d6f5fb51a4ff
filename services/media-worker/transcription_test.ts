import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { BackendDeadlines } from "@gateway/shared/models/catalog";
import type { TranscriptionRequest } from "@gateway/shared/openai/media";
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
  CLOSE,
  eventsIn,
  head,
  named,
  recordCall,
  REDIRECT,
  run,
  STALL,
  startEngine,
  transcriptionWith,
} from "./engine_fixture.ts";

/** Two seconds by its size. */
const FILE = {
  field: "file",
  name: 'a"b.mp3',
  type: "audio/mpeg",
  content: new Uint8Array(16_000),
};
/** Half a second of silence, by its head. */
const WAV = {
  ...FILE,
  content: Buffer.concat([
    Buffer.from("RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0", "latin1"),
    Buffer.from([0x40, 0x1f, 0, 0, 0x80, 0x3e, 0, 0, 2, 0, 16, 0]),
    Buffer.from("data\0\0\0\0", "latin1"),
    Buffer.alloc(8_000),
  ]),
};
/** What the engine is asked and what the client gets. */
async function transcribe(
  reply: Iterable<Step>,
  change: Partial<TranscriptionRequest> = {},
  file = FILE,
) {
  await using r = startEngine(() => reply);
  const call = recordCall();
  call.files = [file];
  return await run(r.engine, transcriptionWith(change), call);
}

const SSE = { stream: true } as const;
const text = (type: string, body: string) =>
  head(
    `200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${body.length}`,
    body,
  );
const delta = (delta: string) =>
  named({ type: "transcript.text.delta", delta });
const done = (more: object) => named({ type: "transcript.text.done", ...more });
const sse = (...events: string[]) => [
  streamHead(),
  ...events.map(chunk),
  lastChunk,
];
const two = { type: "duration", seconds: 2 };

Deno.test("an engine is sent a form with the model first and the file last", async () => {
  await using r = startEngine(() => jsonResponse({ text: "Hi" }));
  const call = recordCall();
  call.files = [FILE];
  const request = transcriptionWith({
    task: "translate",
    language: "de",
    prompt: "Grüße",
    temperature: 0.5,
    timestamp_granularities: ["word", "segment"],
    stream: true,
  });
  await run(r.engine, request, call);
  const asked = await r.server.request(1);
  assert.equal(`${asked.method} ${asked.path}`, "POST /v1/audio/translations");
  assert.equal(asked.headers.get("authorization"), `Bearer ${API_KEY}`);
  const form = await new Response(asked.body, {
    headers: { "content-type": asked.headers.get("content-type") ?? "" },
  }).formData();
  const fields = [...form].map(([name, value]) =>
    typeof value === "string" ? [name, value] : [name, value.name, value.size]
  );
  assert.deepEqual(fields, [
    ["model", "theirs"],
    ["language", "de"],
    ["prompt", "Grüße"],
    ["response_format", "json"],
    ["temperature", "0.5"],
    ["stream", "true"],
    ["timestamp_granularities[]", "word"],
    ["timestamp_granularities[]", "segment"],
    ["file", "a%22b.mp3", 16_000],
  ]);
});

const documents: [
  name: string,
  reply: Step[],
  change: Partial<TranscriptionRequest>,
  type: string,
  body: unknown,
][] = [
  ["JSON without usage", jsonResponse({ text: "Hi" }), {}, "application/json", {
    text: "Hi",
    usage: two,
  }],
  [
    "verbose JSON, whose length counts",
    jsonResponse({ text: "Hi", duration: 4.2, words: [] }),
    { response_format: "verbose_json" },
    "application/json",
    { text: "Hi", duration: 4.2, words: [], usage: { ...two, seconds: 5 } },
  ],
  [
    "vLLM's verbose JSON, whose length is a text",
    jsonResponse({ text: "Hi", duration: "4.2" }),
    { response_format: "verbose_json" },
    "application/json",
    { text: "Hi", duration: "4.2", usage: { ...two, seconds: 5 } },
  ],
  [
    "a text instead of JSON",
    [text("text/plain", "Hi")],
    {},
    "application/json",
    {
      text: "Hi",
      usage: two,
    },
  ],
  [
    "JSON instead of a text",
    jsonResponse({ text: "Hi" }),
    { response_format: "text" },
    "text/plain",
    "Hi",
  ],
  [
    "subtitles",
    [text("text/vtt", "WEBVTT\n")],
    { response_format: "vtt" },
    "text/vtt",
    "WEBVTT\n",
  ],
  [
    "silence",
    jsonResponse({ text: "" }),
    { response_format: "text" },
    "text/plain",
    "",
  ],
  [
    "events",
    sse(delta("H"), delta("i"), done({ text: "Hi" }), event("[DONE]")),
    {},
    "application/json",
    { text: "Hi", usage: two },
  ],
];

for (const [name, reply, change, type, body] of documents) {
  Deno.test(`a transcription is made of ${name}`, async () => {
    const answer = await transcribe(reply, change);
    assert.equal(answer.error, null);
    assert.equal(answer.type, `${type}; charset=utf-8`);
    const isJson = type.endsWith("json");
    assert.deepEqual(isJson ? JSON.parse(answer.text) : answer.text, body);
    assert.equal(
      answer.made,
      change.response_format === "verbose_json" ? 5 : 2,
    );
  });
}

Deno.test("events are passed on, or made of a whole transcription", async () => {
  const usage = { type: "tokens", total_tokens: 9 };
  const rows: [reply: Step[], usage: object, deltas: string[]][] = [
    [sse(delta("H"), delta("i"), done({ text: "Hi", usage })), usage, [
      "H",
      "i",
    ]],
    [sse(delta("H"), delta("i"), done({})), two, ["H", "i"]],
    [jsonResponse({ text: "Hi" }), two, ["Hi"]],
  ];
  for (const [reply, usage, deltas] of rows) {
    const answer = await transcribe(reply, SSE);
    assert.equal(answer.error, null);
    assert.deepEqual(eventsIn(answer.text), [
      ...deltas.map((delta) => ({ type: "transcript.text.delta", delta })),
      { type: "transcript.text.done", text: "Hi", usage },
    ]);
  }
});

/** vLLM's events, which are like those of a chat, and those of speaches, without a type. */
const foreign: [server: string, events: string[]][] = [
  ["vLLM", [
    ...["H", "i"].map((content) =>
      event({
        ...{ id: "t1", object: "transcription.chunk", model: "theirs" },
        choices: [{ delta: { content }, finish_reason: null }],
      })
    ),
    event("[DONE]"),
  ]],
  ["speaches", ["H", "i"].map((text) => event({ text }))],
];

for (const [server, events] of foreign) {
  Deno.test(`the events of a transcription by ${server} become OpenAI's, or a document`, async () => {
    const stream = await transcribe(sse(...events), SSE);
    assert.equal(stream.error, null);
    assert.deepEqual(eventsIn(stream.text), [
      { type: "transcript.text.delta", delta: "H" },
      { type: "transcript.text.delta", delta: "i" },
      { type: "transcript.text.done", text: "Hi", usage: two },
    ]);
    const whole = await transcribe(sse(...events));
    assert.deepEqual(JSON.parse(whole.text), { text: "Hi", usage: two });
    assert.equal(whole.made, 2);
  });
}

Deno.test("events are asked for as JSON", async () => {
  for (const [stream, sent] of [[true, "json"], [false, "vtt"]] as const) {
    await using r = startEngine(() => jsonResponse({ text: "Hi" }));
    const change = { stream, response_format: "vtt" } as const;
    await run(r.engine, transcriptionWith(change));
    const { body } = await r.server.request(1);
    assert.match(body, new RegExp(`"response_format"\r\n\r\n${sent}\r`));
  }
});

Deno.test("a WAV file says how long it is", async () => {
  // Players ignore the rate of bytes in the head, so it may claim anything.
  const claims = Buffer.concat([WAV.content, Buffer.alloc(152_000)]);
  claims.writeUInt32LE(0xffffffff, 28);
  const padded = Buffer.from(claims);
  padded.write("JUNK", 12, "latin1");
  const rows = [[WAV.content, 1], [claims, 11], [padded, 21]] as const;
  for (const [content, seconds] of rows) {
    const file = { ...WAV, content };
    const { made } = await transcribe(jsonResponse({ text: "Hi" }), {}, file);
    assert.equal(made, seconds);
  }
});

type Failure = [
  name: string,
  reply: Iterable<Step>,
  more?: {
    change?: Partial<TranscriptionRequest>;
    deadlines?: Partial<BackendDeadlines>;
    events?: number;
  },
];
const AFTER = { change: SSE, events: 1 };
const begun: Step[] = [streamHead(), chunk(delta("H")), { pauseMs: 20 }];
function* endless(type: string, start: string): Iterable<Step> {
  yield streamHead({ headers: { "content-type": type } });
  yield chunk(start);
  for (;;) yield chunk("x".repeat(1024 * 1024));
}
const failures: { [fault: string]: Failure[] } = {
  request: [
    [
      "a file that is no recording",
      jsonResponse({ detail: "Not audio" }, { status: 400 }),
    ],
  ],
  server_error: [
    ["a redirect", [REDIRECT]],
    ["an error with status 200", jsonResponse({ error: { message: "OOM" } })],
    ["an error event", [
      ...begun,
      chunk(named({ type: "error", message: "OOM" })),
    ], AFTER],
  ],
  invalid: [
    ["a page", [text("text/html", "<html>")]],
    ["JSON without a text", jsonResponse({ words: [] })],
    ["garbage instead of HTTP", [{ send: "\0\xff garbage\r\n\r\n" }]],
    ["a text beyond the bound", endless("text/plain", "a")],
    ["an event beyond the bound", endless("text/event-stream", "data: "), {
      change: SSE,
    }],
    ["an event that is not JSON", [...begun, chunk(event("garbage"))], AFTER],
  ],
  truncated: [
    ["a text that is cut", [head("200 OK\r\ncontent-length: 9", "Hi"), {
      pauseMs: 20,
    }, CLOSE]],
    ["events without a last one", [...begun, lastChunk], AFTER],
    ["events of vLLM that are cut", [
      streamHead(),
      chunk(event({ choices: [{ delta: { content: "H" } }] })),
      { pauseMs: 20 },
      CLOSE,
    ], AFTER],
  ],
  timeout: [
    ["no event", [streamHead(), STALL], {
      change: SSE,
      deadlines: { first_token_ms: 50 },
    }],
    ["events that stall", [...begun, STALL], {
      ...AFTER,
      deadlines: { between_tokens_ms: 50 },
    }],
    ["a text that stalls", [head("200 OK\r\ncontent-length: 9", "Hi"), STALL], {
      deadlines: { between_tokens_ms: 50 },
    }],
  ],
  unreachable: [["a hang-up", [CLOSE]]],
  deadline: [["no text", [STALL], {
    deadlines: { total_ms: 80, first_token_ms: 20 },
  }]],
};

for (const [fault, cases] of Object.entries(failures)) {
  for (const [name, reply, more = {}] of cases) {
    Deno.test(`transcriptions fail with ${fault} for ${name}`, async () => {
      await using r = startEngine(() => reply, more);
      const call = recordCall();
      call.files = [FILE];
      const request = transcriptionWith(more.change);
      const { error, text, made } = await run(r.engine, request, call);
      await assertFault(error, fault, r);
      // What was heard before is charged, and nothing else.
      assert.equal(made, more.events === undefined ? 0 : 2);
      assert.equal(eventsIn(text).length, more.events ?? 0);
    });
  }
}

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import type {
  BackendConfig,
  BackendDeadlines,
} from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import type { ImageRequest } from "@gateway/shared/openai/media";
import type {
  FakeRequest,
  Step,
} from "../../tests/support/fake_model_server.ts";
import {
  chunk,
  event,
  jsonResponse,
  lastChunk,
  streamHead,
} from "../../tests/support/model_answers.ts";
import { AnswerMemory } from "./answer_memory.ts";
import {
  API_KEY,
  assertFault,
  CLOSE,
  eventsIn,
  head,
  imageWith,
  named,
  recordCall,
  REDIRECT,
  run,
  STALL,
  startEngine,
} from "./engine_fixture.ts";

const SSE = { stream: true } as const;
const MIB = 1024 * 1024;
const CREATED = 1_767_622_290;
const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 1, 2, 3]);
const PICTURE = PNG.toBase64();
/** 8 MiB, as large as one of 3840 x 2160. */
const LARGE = Buffer.alloc(6 * MIB, 7).toBase64();
const usage = { input_tokens: 3, output_tokens: 9, total_tokens: 12 };
/** What is made of no usage: the tokens that "A red fox" is likely to have. */
const estimated = { input_tokens: 3, output_tokens: 0, total_tokens: 3 };
const about = {
  background: "opaque",
  output_format: "webp",
  quality: "low",
  size: "64x64",
};
const presets = {
  background: "auto",
  output_format: "png",
  quality: "auto",
  size: "auto",
};

const COMPLETED = "image_generation.completed";
const PARTIAL = "image_generation.partial_image";
const completed = (more: object = {}) =>
  named({ type: COMPLETED, b64_json: PICTURE, ...more });
const partial = (index: number, more: object = {}) =>
  named({
    type: PARTIAL,
    b64_json: PICTURE,
    partial_image_index: index,
    ...more,
  });
const sse = (...events: string[]) => [
  streamHead(),
  ...events.map(chunk),
  lastChunk,
];
const json = (data: unknown, more: object = {}) =>
  jsonResponse({ created: 5, data, ...more });
const one = [{ b64_json: PICTURE }];

Deno.test("an engine is sent what the client chose, and asked for base64", async () => {
  const plain = { model: "theirs", prompt: "A red fox" };
  const asked = { ...plain, response_format: "b64_json" };
  const chosen = {
    n: 3,
    size: "64x64",
    quality: "hd",
    background: "opaque",
    output_format: "webp",
    output_compression: 0,
    moderation: "low",
    style: "vivid",
    user: "u",
  } as const;
  const rows: [
    change: Partial<ImageRequest>,
    members: Partial<BackendConfig>,
    sent: object,
  ][] = [
    [{}, {}, asked],
    [chosen, {}, { ...asked, ...chosen }],
    [
      { size: "auto", quality: "auto", background: "auto", moderation: "auto" },
      {},
      asked,
    ],
    [SSE, {}, asked],
    [{ ...SSE, partial_images: 0 }, { image_format_field: "none" }, plain],
    [
      { ...SSE, partial_images: 1 },
      {},
      { ...asked, stream: true, partial_images: 1 },
    ],
  ];
  for (const [change, members, sent] of rows) {
    await using r = startEngine(() => json(one), { members });
    await run(r.engine, imageWith(change));
    const request = await r.server.request(1);
    assert.equal(
      `${request.method} ${request.path}`,
      "POST /v1/images/generations",
    );
    assert.deepEqual(request.json(), sent);
  }
});

Deno.test("an engine is sent the pictures to edit in a form, the model first and the files last", async () => {
  const file = (field: string) => (
    { field, name: `${field}.png`, type: "image/png", content: PNG }
  );
  const rows: [files: string[], sent: string[]][] = [
    [["image"], ["image"]],
    [["image", "image", "mask"], ["image[]", "image[]", "mask"]],
  ];
  for (const [files, sent] of rows) {
    await using r = startEngine(() => json(one));
    const call = recordCall();
    call.files = files.map(file);
    const request = imageWith({
      ...{ task: "edit", n: 2, size: "auto", input_fidelity: "high" },
      ...{ output_compression: 0 },
    });
    await run(r.engine, request, call);
    const asked = await r.server.request(1);
    assert.equal(`${asked.method} ${asked.path}`, "POST /v1/images/edits");
    const form = await new Response(asked.body, {
      headers: { "content-type": asked.headers.get("content-type") ?? "" },
    }).formData();
    const fields = [...form].map(([name, value]) =>
      typeof value === "string" ? [name, value] : [name, value.type]
    );
    assert.deepEqual(fields, [
      ["model", "theirs"],
      ["prompt", "A red fox"],
      ["response_format", "b64_json"],
      ["n", "2"],
      ["output_compression", "0"],
      ["input_fidelity", "high"],
      ...sent.map((name) => [name, "image/png"]),
    ]);
  }
});

const documents: [
  name: string,
  reply: Step[],
  document: object,
  change?: Partial<ImageRequest>,
][] = [
  ["OpenAI's", json(one, { ...about, usage, more: 1 }), {
    created: 5,
    data: one,
    ...about,
    usage,
  }],
  [
    "vLLM-Omni's",
    json([{ b64_json: PICTURE, url: null, revised_prompt: null }], {
      output_format: null,
      size: "64x64",
      metrics: {},
    }),
    { created: 5, data: one, size: "64x64" },
  ],
  [
    "one with a revised prompt",
    json([{ b64_json: PICTURE, revised_prompt: 'A "fox" 🦊' }]),
    {
      created: 5,
      data: [{ b64_json: PICTURE, revised_prompt: 'A "fox" 🦊' }],
    },
  ],
  [
    "SGLang's, without the paths of its files",
    json([{ b64_json: PICTURE, url: null, file_path: "/srv/out/a.png" }], {
      ...{ id: "r1", peak_memory_mb: 9, inference_time_s: 0.5 },
      usage: { ...usage, image_count: 1 },
    }),
    { created: 5, data: one, usage: { ...usage, image_count: 1 } },
  ],
  ["one without a time", jsonResponse({ data: one }), {
    created: CREATED,
    data: one,
  }],
  [
    "one without a type",
    [head("200 OK", JSON.stringify({ created: 5, data: one })), CLOSE],
    { created: 5, data: one },
  ],
  [
    "data URLs",
    json([
      { b64_json: `data:image/png;base64,${PICTURE}` },
      { url: `data:image/png;base64,${PICTURE}` },
    ]),
    { created: 5, data: [...one, ...one] },
    { n: 2 },
  ],
  ["more pictures than requested", json([...one, ...one, ...one]), {
    created: 5,
    data: [...one, ...one],
  }, { n: 2 }],
  ["events", sse(partial(0), completed({ created_at: 7, ...about, usage })), {
    created: 7,
    data: one,
    ...about,
    usage,
  }],
];

for (const [name, reply, document, change] of documents) {
  Deno.test(`a document is made of ${name}`, async () => {
    await using r = startEngine(() => reply);
    const { error, type, text, made } = await run(r.engine, imageWith(change));
    assert.equal(error, null);
    assert.equal(type, "application/json");
    assert.deepEqual(JSON.parse(text), document);
    assert.equal(made, change?.n ?? 1);
  });
}

/** The events of vLLM-Omni's edits: what it thinks, then a whole answer. */
const omniEvents = sse(
  event({ object: "image.edit.chunk", type: "ar_delta", delta: "A fox" }),
  event({
    ...{ object: "image.edit.chunk", type: "image", created: 5, data: one },
    ...{ output_format: "webp", size: "64x64" },
  }),
  event("[DONE]"),
);
const EDIT = { task: "edit" } as const;
const edited = "image_edit.completed";

const streams: [
  name: string,
  reply: Step[],
  events: object[],
  change?: Partial<ImageRequest>,
][] = [
  [
    "OpenAI's",
    sse(
      partial(0, { created_at: 7, ...about }),
      ": ping\n\n",
      partial(1, { created_at: 8, ...about }),
      completed({ created_at: 9, ...about, usage }),
    ),
    [
      {
        type: PARTIAL,
        created_at: 7,
        ...about,
        partial_image_index: 0,
        b64_json: PICTURE,
      },
      {
        type: PARTIAL,
        created_at: 8,
        ...about,
        partial_image_index: 1,
        b64_json: PICTURE,
      },
      {
        type: COMPLETED,
        created_at: 9,
        ...about,
        usage,
        b64_json: PICTURE,
      },
    ],
    { partial_images: 2 },
  ],
  [
    "events that say little",
    sse(event({ type: COMPLETED, b64_json: PICTURE })),
    [{
      type: COMPLETED,
      created_at: CREATED,
      ...presets,
      size: "64x64",
      usage: estimated,
      b64_json: PICTURE,
    }],
    { size: "64x64" },
  ],
  [
    "events with a name only, and others",
    sse(
      "event: image_generation.started\ndata: {}\n\n",
      `event: ${COMPLETED}\ndata: ${JSON.stringify({ b64_json: PICTURE })}\n\n`,
    ),
    [{
      type: COMPLETED,
      created_at: CREATED,
      ...presets,
      usage: estimated,
      b64_json: PICTURE,
    }],
  ],
  [
    "a document, of an engine that does not stream",
    json(one, { ...about, usage }),
    [{
      type: COMPLETED,
      created_at: 5,
      ...about,
      usage,
      b64_json: PICTURE,
    }],
  ],
  [
    "vLLM-Omni's of an edit",
    omniEvents,
    [{
      type: edited,
      created_at: 5,
      ...presets,
      output_format: "webp",
      size: "64x64",
      usage: estimated,
      b64_json: PICTURE,
    }],
    { ...EDIT, partial_images: 1 },
  ],
  [
    "an edit",
    sse(
      named({ type: "image_edit.partial_image", b64_json: PICTURE, ...about }),
      named({ type: edited, b64_json: PICTURE, ...about, usage }),
    ),
    [
      {
        type: "image_edit.partial_image",
        created_at: CREATED,
        ...about,
        partial_image_index: 0,
        b64_json: PICTURE,
      },
      { type: edited, created_at: CREATED, ...about, usage, b64_json: PICTURE },
    ],
    { ...EDIT, partial_images: 1 },
  ],
  [
    "a picture of 8 MiB",
    sse(completed({ b64_json: LARGE })),
    [{
      type: COMPLETED,
      created_at: CREATED,
      ...presets,
      usage: estimated,
      b64_json: LARGE,
    }],
  ],
];

for (const [name, reply, events, change] of streams) {
  Deno.test(`events are made of ${name}`, async () => {
    await using r = startEngine(() => reply);
    const request = imageWith({ ...SSE, ...change });
    const { error, type, text, made } = await run(r.engine, request);
    assert.equal(error, null);
    assert.equal(type, "text/event-stream");
    assert.deepEqual(eventsIn(text), events);
    assert.equal(made, 1);
    assert.equal(r.memory.bytes, 0);
  });
}

/** Answers with an URL, and with what is there. */
const pointing = (url: (port: number) => string, there: Step[]) => {
  const paths: string[] = [];
  const reply = ({ method, path, headers }: FakeRequest) => {
    paths.push(path);
    if (method === "GET") return there;
    const port = Number(headers.get("host")?.split(":")[1]);
    return json([{ url: url(port) }]);
  };
  return { reply, paths };
};
const there = [
  head("200 OK\r\ncontent-type: image/png\r\ncontent-length: 7", PNG),
];

for (
  const [name, url, path] of [
    [
      "of the engine",
      (port: number) => `http://127.0.0.1:${port}/f/a.png?x=1`,
      "/f/a.png?x=1",
    ],
    [
      "that begins with a slash",
      () => "/v1/images/a/content",
      "/v1/images/a/content",
    ],
    ["without a slash", () => "images/a", "/v1/images/a"],
  ] as const
) {
  Deno.test(`a picture at a URL ${name} is fetched with the engine's key`, async () => {
    const { reply, paths } = pointing(url, there);
    await using r = startEngine(reply);
    const { error, text } = await run(r.engine, imageWith());
    assert.equal(error, null);
    assert.deepEqual(JSON.parse(text), { created: 5, data: one });
    assert.equal(paths[1], path);
    const { headers } = await r.server.request(2);
    assert.equal(headers.get("authorization"), `Bearer ${API_KEY}`);
  });
}

/** The guarantee: an engine cannot make the worker call another server. */
for (
  const [name, url] of [
    ["another host", (port: number) => `http://localhost:${port}/a`],
    ["another port", () => "http://127.0.0.1:9/a"],
    ["another protocol", (port: number) => `https://127.0.0.1:${port}/a`],
    ["another host without protocol", (port: number) => `//[::1]:${port}/a`],
    ["a file", () => "file:///etc/passwd"],
    ["nothing that is a URL", () => "http://["],
  ] as const
) {
  Deno.test(`API7: a picture at ${name} is not fetched`, async () => {
    const { reply, paths } = pointing(url, there);
    await using r = startEngine(reply);
    const { error, body } = await run(r.engine, imageWith());
    await assertFault(error, "invalid", r);
    assert.equal(body.length, 0);
    assert.equal(paths.length, 1);
  });
}

const fetched: [
  name: string,
  there: Step[],
  fault: string,
  deadlines?: Partial<BackendDeadlines>,
][] = [
  ["a redirect", [
    head("302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0"),
  ], "server_error"],
  [
    "a refusal",
    jsonResponse({ error: { message: "Gone" } }, { status: 400 }),
    "invalid",
  ],
  ["a page", [
    streamHead({ headers: { "content-type": "text/html" } }),
    lastChunk,
  ], "invalid"],
  ["nothing", [head("200 OK\r\ncontent-length: 0")], "truncated"],
  [
    "part of a picture",
    [head("200 OK\r\ncontent-length: 9", PNG), CLOSE],
    "truncated",
  ],
  ["no answer", [STALL], "deadline", { total_ms: 100 }],
  [
    "a picture that stalls",
    [head("200 OK\r\ncontent-length: 9", PNG), STALL],
    "timeout",
    { between_tokens_ms: 50 },
  ],
];

for (const [name, reply, fault, deadlines = {}] of fetched) {
  Deno.test(`API7, API10: pictures fail with ${fault} for ${name} at the URL of a picture`, async () => {
    const pointer = pointing(() => "/a", reply);
    await using r = startEngine(pointer.reply, { deadlines });
    const { error, body } = await run(r.engine, imageWith());
    await assertFault(error, fault, r);
    assert.equal(body.length, 0);
    assert.equal(r.memory.bytes, 0);
  });
}

type Failure = [
  name: string,
  reply: Iterable<Step>,
  more?: {
    deadlines?: Partial<BackendDeadlines>;
    change?: Partial<ImageRequest>;
    message?: RegExp;
    /** The events that were passed on before. */
    events?: number;
  },
];
const PARTLY = { change: { ...SSE, partial_images: 1 } };
const STREAM = { change: SSE };
const AFTER = { ...PARTLY, events: 1 };
const pause: Step = { pauseMs: 20 };
const begun: Step[] = [streamHead(), chunk(partial(0)), pause];
const error = { message: `No GPU for ${API_KEY}`, code: 500 };
const long = "x".repeat(MIB);
function* endless(start: Step): Iterable<Step> {
  yield start;
  for (;;) yield chunk(long);
}

const failures: { [fault: string]: Failure[] } = {
  request: [
    [
      "vLLM-Omni's refusal to stream edits",
      jsonResponse({ detail: "stream=true is only supported for …" }, {
        status: 400,
      }),
      { ...PARTLY, message: /^stream=true is only/ },
    ],
    [
      "a refusal by FastAPI",
      jsonResponse({ detail: "Bad size" }, { status: 422 }),
      { message: /^Bad size$/ },
    ],
    [
      "an error with status 200",
      jsonResponse({
        error: { message: "Unsafe", type: "invalid_request_error" },
      }),
      { message: /^Unsafe$/ },
    ],
  ],
  server_error: [
    ["an error event after a picture", [...begun, chunk(event({ error }))], {
      ...AFTER,
      message: /^No GPU for \[redacted\]$/,
    }],
    [
      "an error event with a name",
      sse(named({ type: "error", error })),
      STREAM,
    ],
    ["a redirect", [REDIRECT]],
    [
      "a picture that could not be made",
      jsonResponse({ detail: "OOM" }, { status: 500 }),
    ],
  ],
  invalid: [
    ["a page", [
      streamHead({ headers: { "content-type": "text/html" } }),
      chunk("<html>"),
      lastChunk,
    ]],
    ["a picture instead of a document", there],
    ["garbage", jsonResponse("garbage")],
    ["a document without data", jsonResponse({ images: [] })],
    ["data that is no list", json({})],
    ["a picture without data", json([{}])],
    ["a picture that is not base64", json([{ b64_json: "*" }])],
    ["a picture with padding in the middle", json([{ b64_json: "aa=a" }])],
    ["an event that is not base64", [
      ...begun,
      chunk(completed({ b64_json: 'a"b' })),
    ], AFTER],
    ["an event that is not JSON", [...begun, chunk(event("garbage"))], AFTER],
    [
      "a document beyond the bound",
      endless(streamHead({ headers: { "content-type": "application/json" } })),
    ],
    ["an event beyond the bound", endless(streamHead()), STREAM],
  ],
  truncated: [
    ["no picture", json([])],
    ["a document that is cut", [
      head("200 OK\r\ncontent-length: 99", "{"),
      pause,
      CLOSE,
    ]],
    [
      "an event that is cut",
      [...begun, chunk(completed().slice(0, 60)), CLOSE],
      AFTER,
    ],
    ["no finished picture", sse(partial(0)), AFTER],
    [
      "no finished picture before [DONE]",
      sse(partial(0), event("[DONE]")),
      AFTER,
    ],
    ["no events", sse(), STREAM],
    ["no finished picture for a document", sse(partial(0))],
  ],
  timeout: [
    ["no unfinished picture", [STALL], {
      ...PARTLY,
      deadlines: { first_token_ms: 50 },
    }],
    ["no event after the head", [streamHead(), chunk(": ping\n\n"), STALL], {
      ...PARTLY,
      deadlines: { first_token_ms: 50 },
    }],
    ["events that stall", [...begun, STALL], {
      ...AFTER,
      deadlines: { between_tokens_ms: 50 },
    }],
    ["an event that stalls", [...begun, chunk("data: {"), STALL], {
      ...AFTER,
      deadlines: { between_tokens_ms: 50 },
    }],
    ["a document that stalls", [
      head("200 OK\r\ncontent-length: 99", "{"),
      STALL,
    ], { deadlines: { between_tokens_ms: 50 } }],
  ],
  deadline: [
    ["no document", [STALL], {
      deadlines: { total_ms: 80, first_token_ms: 20 },
    }],
    ["no finished picture", [streamHead(), STALL], {
      ...STREAM,
      deadlines: { total_ms: 80, first_token_ms: 20, between_tokens_ms: 20 },
    }],
  ],
};

for (const [fault, cases] of Object.entries(failures)) {
  for (const [name, reply, more = {}] of cases) {
    Deno.test(`pictures fail with ${fault} for ${name}`, async () => {
      await using r = startEngine(() => reply, more);
      const { error, text, made } = await run(r.engine, imageWith(more.change));
      const failure = await assertFault(error, fault, r);
      assert.match(failure.message, more.message ?? /./);
      assert.equal(eventsIn(text).length, more.events ?? 0);
      assert.equal(made, 0);
      assert.equal(r.memory.bytes, 0);
    });
  }
}

Deno.test("API4: pictures beyond the memory of the process are refused, and may be tried elsewhere", async () => {
  const memory = new AnswerMemory(LARGE.length + MIB);
  const held = memory.open();
  for (
    const reply of [
      json([{ b64_json: LARGE }]),
      sse(completed({ b64_json: LARGE })),
    ]
  ) {
    await using r = startEngine(() => reply, { memory });
    held.set(2 * MIB);
    const refused = await run(r.engine, imageWith(SSE));
    assert.ok(refused.error instanceof ApiError);
    assert.equal(refused.error.code, "overloaded");
    assert.equal(refused.body.length, 0);
    held.release();
    assert.equal(memory.bytes, 0);
    assert.equal((await run(r.engine, imageWith(SSE))).error, null);
  }
  const answers = Array.from({ length: 3 }, () => memory.open());
  const refused = answers.filter((answer) => {
    try {
      answer.set(4 * MIB);
      return false;
    } catch {
      return true;
    }
  });
  assert.equal(refused.length, 1, "one makes room for the others");
  assert.ok(MEDIA_LIMITS.imageAnswerBytesMax <= MEDIA_LIMITS.heldBytesMax);
});

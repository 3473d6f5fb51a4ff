/** Images: requests to servers, and their answers. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { HELD_BYTES_MAX, MEDIA_LIMITS } from "@gateway/shared/limits";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { ImageRequest } from "@gateway/shared/openai/media";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import { until } from "../../tests/support/wait_for.ts";
import type { Step } from "../../tests/support/model_servers/scripted_server.ts";
import {
  CLOSE,
  event,
  head,
  jsonResponse,
} from "../../tests/support/model_servers/model_answers.ts";
import { recordContext } from "../../tests/support/model_servers/recorded_context.ts";
import {
  codeOf,
  eventsIn,
  formOf,
  IMAGE,
  namedEvent,
  partly,
  SSE,
  sse,
  startServer,
} from "./server_fixture.ts";

const MIB = 1024 * 1024;
const CREATED = 1_767_622_290;
const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 1, 2, 3]);
const b64_json = PNG.toBase64();
/** 8 MiB, as large as one of 3840 x 2160. */
const LARGE = Buffer.alloc(6 * MIB, 7).toBase64();
const usage = { input_tokens: 3, output_tokens: 9, total_tokens: 12 };
/** Without a stated usage: the tokens that "A red fox" is likely to have. */
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
  namedEvent({ type: COMPLETED, b64_json, ...more });
const partial = (index: number, more: object = {}) =>
  namedEvent({ type: PARTIAL, b64_json, partial_image_index: index, ...more });
const json = (data: unknown, more: object = {}) =>
  jsonResponse({ created: 5, data, ...more });
const one = [{ b64_json }];

const PLAIN = { model: "theirs", prompt: "A red fox" };
const FORWARDED = { ...PLAIN, response_format: "b64_json" };
const CHOSEN = {
  n: 3,
  negative_prompt: "blue",
  seed: 7,
  num_inference_steps: 9,
  size: "64x64",
  quality: "hd",
  background: "opaque",
  output_format: "webp",
  output_compression: 0,
  moderation: "low",
  style: "vivid",
  user: "u",
};
const AUTO = "auto" as const;
/** What a client asks for, and what its server is sent. */
const GENERATIONS: {
  change: Partial<ImageRequest>;
  members: Partial<BackendConfig>;
  body: object;
}[] = [
  {
    change: { fields: CHOSEN },
    members: {},
    body: { ...FORWARDED, ...CHOSEN },
  },
  {
    change: {
      fields: {
        size: AUTO,
        quality: AUTO,
        background: AUTO,
        moderation: AUTO,
      },
    },
    members: {},
    body: FORWARDED,
  },
  { change: { format: "url" }, members: {}, body: FORWARDED },
  {
    change: { format: "file" },
    members: {},
    body: { ...PLAIN, response_format: "file" },
  },
  { change: SSE, members: {}, body: FORWARDED },
  { change: partly(0), members: { image_format_field: "none" }, body: PLAIN },
  {
    change: partly(1),
    members: {},
    body: {
      ...FORWARDED,
      stream: true,
      partial_images: 1,
    },
  },
];

Deno.test("a server is sent what the client chose, and asked for base64", async () => {
  for (const { change, members, body } of GENERATIONS) {
    await using r = startServer(() => json(one), members);
    await r.run({ ...IMAGE, ...change });
    const { method, path, ...request } = await r.peer.request(1);
    assert.equal(`${method} ${path}`, "POST /v1/images/generations");
    assert.deepEqual(JSON.parse(request.body), body);
  }
});

Deno.test("a server is sent the pictures to edit in a form, the model first and the files last", async () => {
  const rows: [files: string[], sent: string[]][] = [
    [["image"], ["image"]],
    [["image", "image", "mask"], ["image[]", "image[]", "mask"]],
  ];
  for (const [fields, result] of rows) {
    await using r = startServer(() => json(one));
    const files = fields.map((field) => (
      { field, name: "a.png", type: "image/png", content: PNG }
    ));
    const chosen = {
      n: "2",
      size: "auto",
      output_compression: "0",
      "tags[]": ["a", "b"],
    };
    const edit = { ...IMAGE, task: "edit", fields: chosen } as const;
    await r.run(edit, recordContext({ files }));
    const request = await r.peer.request(1);
    assert.equal(`${request.method} ${request.path}`, "POST /v1/images/edits");
    assert.deepEqual(await formOf(request), [
      ["model", "theirs"],
      ["prompt", "A red fox"],
      ["response_format", "b64_json"],
      ["n", "2"],
      ["output_compression", "0"],
      ["tags[]", "a"],
      ["tags[]", "b"],
      ...result.map((name) => [name, "image/png", "a.png"]),
    ]);
  }
});

const revised = { b64_json, revised_prompt: 'A "fox" 🦊' };
const dataUrl = `data:image/png;base64,${b64_json}`;
const ofVllm = { ...one[0], url: null, revised_prompt: null };
const ofSglang = { ...one[0], url: null, file_path: "/srv/out/a.png" };
const counted = { usage: { ...usage, image_count: 1 } };
const two = [...one, ...one];
const picture = [
  head("200 OK\r\ncontent-type: image/png\r\ncontent-length: 7", PNG),
];
const untyped = head("200 OK", JSON.stringify({ created: 5, data: one }));
/** A document of one image, made at 5. */
interface Document {
  name: string;
  reply: Step[];
  /** What else is in it. */
  members: object;
  n?: number;
}

const documents: Document[] = [
  {
    name: "OpenAI's",
    reply: json(one, { ...about, usage, more: [1] }),
    members: {
      ...about,
      usage,
      more: [1],
    },
  },
  {
    name: "vLLM-Omni's",
    reply: json([ofVllm], { output_format: null, size: "64x64", metrics: {} }),
    members: { size: "64x64", metrics: {} },
  },
  {
    name: "one with a revised prompt",
    reply: json([revised]),
    members: { data: [revised] },
  },
  {
    name: "SGLang's, without the paths of its files",
    reply: json([ofSglang], { id: "r1", peak_memory_mb: 9, ...counted }),
    members: { ...counted, id: "r1", peak_memory_mb: 9 },
  },
  {
    name: "a picture without a document",
    reply: picture,
    members: { created: CREATED },
  },
  {
    name: "one without a time",
    reply: jsonResponse({ data: one }),
    members: { created: CREATED },
  },
  { name: "one without a type", reply: [untyped, CLOSE], members: {} },
  {
    name: "data URLs",
    reply: json([{ b64_json: dataUrl }, { url: dataUrl }]),
    members: { data: two },
    n: 2,
  },
  {
    name: "more pictures than requested",
    reply: json([...two, ...one]),
    members: { data: two },
    n: 2,
  },
  {
    name: "events",
    reply: sse(partial(0), completed({ created_at: 7, ...about, usage })),
    members: { created: 7, ...about, usage },
  },
];

for (const { name, reply, members, n = 1 } of documents) {
  Deno.test(`a document is made of ${name}`, async () => {
    await using r = startServer(() => reply);
    const request = { ...IMAGE, count: n };
    const { error, type, text, units } = await r.run(request);
    assert.equal(error, null);
    assert.equal(type, "application/json");
    assert.deepEqual(JSON.parse(text), { created: 5, data: one, ...members });
    assert.equal(units, n);
  });
}

const EDIT = { task: "edit", fields: { partial_images: 1 } } as const;
const edited = "image_edit.completed";
const partlyEdited = "image_edit.partial_image";
const little = { created_at: CREATED, ...presets, usage: estimated, b64_json };
const webp = { output_format: "webp", size: "64x64" };
interface Stream {
  name: string;
  reply: Step[];
  events: object[];
  /** Fields of the request. */
  change?: Partial<ImageRequest>;
}

const streams: Stream[] = [
  {
    name: "OpenAI's",
    reply: sse(
      partial(0, { created_at: 7, ...about }),
      ": ping\n\n",
      partial(1, { created_at: 8, ...about }),
      completed({ created_at: 9, ...about, usage }),
    ),
    events: [
      {
        type: PARTIAL,
        created_at: 7,
        ...about,
        b64_json,
        partial_image_index: 0,
      },
      {
        type: PARTIAL,
        created_at: 8,
        ...about,
        b64_json,
        partial_image_index: 1,
      },
      { type: COMPLETED, created_at: 9, ...about, usage, b64_json },
    ],
    change: { fields: { partial_images: 2 } },
  },
  {
    name: "events that say little",
    reply: sse(event({ type: COMPLETED, b64_json })),
    events: [
      { ...little, type: COMPLETED, size: "64x64" },
    ],
    change: { fields: { size: "64x64" } },
  },
  {
    name: "events with a name only, and others",
    reply: sse(
      "event: image_generation.started\ndata: {}\n\n",
      `event: ${COMPLETED}\n${event({ b64_json })}`,
    ),
    events: [
      { type: "image_generation.started" },
      { ...little, type: COMPLETED },
    ],
  },
  {
    name: "a document, of a server that does not stream",
    reply: json(one, { ...about, usage }),
    events: [{ type: COMPLETED, created_at: 5, ...about, usage, b64_json }],
  },
  {
    name: "vLLM-Omni's of an edit: what it thinks, then a whole answer",
    reply: sse(
      event({ type: "ar_delta", delta: "A fox" }),
      event({ type: "image", created: 5, data: one, ...webp }),
      event("[DONE]"),
    ),
    events: [
      { type: "ar_delta", delta: "A fox" },
      { ...little, type: edited, created_at: 5, ...webp },
    ],
    change: EDIT,
  },
  {
    name: "an edit",
    reply: sse(
      namedEvent({ type: partlyEdited, b64_json, ...about }),
      namedEvent({ type: edited, b64_json, ...about, usage }),
    ),
    events: [{ type: partlyEdited, partial_image_index: 0 }, {
      type: edited,
      usage,
    }]
      .map((event) => ({ created_at: CREATED, b64_json, ...about, ...event })),
    change: EDIT,
  },
  {
    name: "a picture of 8 MiB",
    reply: sse(completed({ b64_json: LARGE })),
    events: [
      { ...little, type: COMPLETED, b64_json: LARGE },
    ],
  },
];

for (const { name, reply, events, change } of streams) {
  Deno.test(`events are made of ${name}`, async () => {
    await using r = startServer(() => reply);
    const answer = await r.run({ ...IMAGE, ...SSE, ...change });
    assert.equal(answer.error, null);
    assert.equal(answer.type, "text/event-stream");
    assert.deepEqual(eventsIn(answer.text), events);
    assert.equal(answer.units, 1);
    assert.equal(r.memory.bytes, 0);
  });
}

Deno.test("API4: pictures beyond the memory of the process wait for a second, then are refused", async () => {
  let nowMs = 0;
  const memory = new WorkerMemory(4 * (LARGE.length + MIB), () => nowMs);
  const heldBytes = memory.openJob().openAnswer();
  const large = [
    json([{ b64_json: LARGE }]),
    sse(completed({ b64_json: LARGE })),
  ];
  for (const reply of large) {
    await using r = startServer(() => reply, {}, memory);
    void heldBytes.grow(2 * MIB);
    const run = r.run({ ...IMAGE, ...SSE });
    await until(() => memory.isFull);
    nowMs += 1_000;
    memory.tick();
    const refused = await run;
    assert.equal(codeOf(refused.error), "overloaded");
    assert.equal(refused.body.length, 0);
    heldBytes.release();
    assert.equal(memory.bytes, 0);
    assert.equal((await r.run({ ...IMAGE, ...SSE })).error, null);
  }
  const answers = Array.from(
    { length: 3 },
    () => memory.openJob().openAnswer(),
  );
  for (const answer of answers) assert.equal(answer.grow(3 * MIB), undefined);
  const grown = answers.map((answer) => answer.grow(MIB));
  nowMs += 1_000;
  memory.tick();
  const ends = await Promise.allSettled(grown);
  assert.deepEqual(
    ends.map(({ status }) => status),
    ["rejected", "fulfilled", "fulfilled"],
    "one makes room for the others",
  );
  assert.ok(4 * MEDIA_LIMITS.imageAnswerBytesMax <= HELD_BYTES_MAX);
});

// Promise: whatever an engine says of a video becomes one form or a clear error, and
// nothing is fetched from anywhere but the engine.
import assert from "node:assert/strict";
import type { VideoRequest } from "@gateway/shared/openai/video";
import { UpstreamError } from "@gateway/shared/upstream/errors";
import {
  type FakeRequest,
  type Reply,
  startFakeModelServer,
  type Step,
} from "../../tests/support/fake_model_server.ts";
import {
  CLOSE,
  head,
  recordCall,
  run,
  STALL,
  startEngine,
} from "./engine_fixture.ts";

const ABOUT = { kind: "video", model: "ours", stream: false } as const;
const create: VideoRequest = {
  ...{ ...ABOUT, action: "create", prompt: "A fox", seconds: "8" },
};
const job = { ...ABOUT, backend: "openai-1", id: "v/1?" } as const;
const retrieve: VideoRequest = { ...job, action: "retrieve" };
const content: VideoRequest = {
  ...{ ...job, action: "content", variant: "video", range: {} },
};
const FILM = new Uint8Array(3_000).fill(7);

const json = (body: unknown, status = "200 OK"): Step[] => {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return [
    head(
      `${status}\r\ncontent-type: application/json\r\ncontent-length: ${
        new TextEncoder().encode(text).length
      }`,
      text,
    ),
  ];
};
const film = (lines = "200 OK", bytes = FILM): Step[] => [
  head(
    `${lines}\r\ncontent-type: video/mp4\r\ncontent-length: ${bytes.length}`,
    bytes,
  ),
];

Deno.test("a job is started with a form, and asked about under its escaped name", async () => {
  await using t = startEngine(({ method }) =>
    json(
      { id: "v/1?", status: "queued", seconds: 8, extra: [1] },
      method === "POST" ? "201 Created" : "200 OK",
    )
  );
  const call = recordCall();
  call.files = [
    {
      field: "input_reference",
      name: "a.png",
      type: "image/png",
      content: FILM,
    },
  ];
  const made = await run(t.engine, { ...create, size: "64x64" }, call);
  assert.equal(made.error, null);
  assert.deepEqual(JSON.parse(made.text), {
    ...{ backend: "openai-1", id: "v/1?", status: "queued", progress: 0 },
    ...{ completed_at: null, expires_at: null, seconds: "8", size: null },
    error: null,
  });
  const [sent] = t.server.requests;
  const fields = [...sent?.body.matchAll(/ name="(\w+)"/g) ?? []];
  assert.deepEqual(fields.map(([, name]) => name), [
    ...["model", "prompt", "seconds", "size", "input_reference"],
  ]);
  await run(t.engine, retrieve);
  await run(t.engine, { ...job, action: "remix", prompt: "Blue" });
  await run(t.engine, { ...job, action: "delete" });
  assert.deepEqual(
    t.server.requests.map(({ method, path }) => `${method} ${path}`),
    [
      "POST /v1/videos",
      "GET /v1/videos/v%2F1%3F",
      "POST /v1/videos/v%2F1%3F/remix",
      "DELETE /v1/videos/v%2F1%3F",
    ],
  );
});

const states: [said: object, told: object][] = [
  [{ status: "pending" }, { status: "queued" }],
  [{ status: "RUNNING", progress: 41.9 }, {
    status: "in_progress",
    progress: 41,
  }],
  [{ status: "processing", progress: 120 }, { progress: 99 }],
  [{ status: "in_progress", progress: null }, { progress: 0 }],
  [{ status: "succeeded", progress: 3, completed_at: 5.7 }, {
    ...{ status: "completed", progress: 100, completed_at: 5 },
  }],
  [{ status: "completed", expires_at: "soon", seconds: "8", size: "1x1" }, {
    ...{ expires_at: null, seconds: "8", size: "1x1" },
  }],
  ...[-1, 0, "-1", "Infinity", "1e300", "8s", null].map((
    seconds,
  ): [object, object] => [{ status: "completed", seconds }, { seconds: null }]),
  [{ status: "cancelled" }, {
    error: {
      code: "video_failed",
      message: "The model server could not make this video.",
    },
  }],
  [{ status: "failed", error: { code: "nsfw", message: "theirs says no" } }, {
    error: { code: "nsfw", message: "ours says no" },
  }],
  [{ status: "failed", error: "Out of memory" }, {
    error: { code: "video_failed", message: "Out of memory" },
  }],
];

Deno.test("what engines call the states of a video becomes one form", async () => {
  for (const [said, told] of states) {
    await using t = startEngine(() => json({ id: "v", ...said }));
    const { error, text } = await run(t.engine, retrieve);
    assert.equal(error, null, Deno.inspect(said));
    assert.partialDeepStrictEqual(JSON.parse(text), told);
  }
});

const faults: [
  what: string,
  request: VideoRequest,
  reply: Step[],
  fault: string,
  code: string,
][] = [
  ["garbage", create, json("<html>"), "invalid", "upstream_invalid"],
  ["no status", create, json({ id: "v" }), "invalid", "upstream_invalid"],
  [
    "an unknown status",
    retrieve,
    json({ id: "v", status: "odd" }),
    "invalid",
    "upstream_invalid",
  ],
  ["no id", create, json({ status: "queued" }), "invalid", "upstream_invalid"],
  [
    "a path as id",
    create,
    json({ id: "..", status: "queued" }),
    "invalid",
    "upstream_invalid",
  ],
  [
    "an id that no address can have",
    create,
    json('{"id":"\\ud800","status":"queued"}'),
    "invalid",
    "upstream_invalid",
  ],
  [
    "too much",
    retrieve,
    json({ id: "v", status: "queued", more: "x".repeat(300_000) }),
    "invalid",
    "upstream_invalid",
  ],
  [
    "an error with 200",
    create,
    json({ error: { message: "Bad", type: "invalid_request_error" } }),
    "request",
    "invalid_request",
  ],
  [
    "FastAPI's detail",
    create,
    json({ detail: "Bad size" }, "422 No"),
    "request",
    "invalid_request",
  ],
  ["a stall", retrieve, [STALL], "timeout", "upstream_timeout"],
  [
    "a cut",
    retrieve,
    [head("200 OK\r\ncontent-length: 9", "{"), CLOSE],
    "truncated",
    "upstream_truncated",
  ],
  [
    "a redirect",
    retrieve,
    [head("302 Found\r\nlocation: /x\r\ncontent-length: 0")],
    "server_error",
    "upstream_error",
  ],
  [
    "no such video",
    retrieve,
    json({ detail: "Video not found" }, "404 Not Found"),
    "request",
    "not_found",
  ],
  [
    "no remix",
    { ...job, action: "remix", prompt: "x" },
    json({ detail: "Not Found" }, "404 Not Found"),
    "request",
    "invalid_request",
  ],
  [
    "no method for remix",
    { ...job, action: "remix", prompt: "x" },
    json({}, "405 No"),
    "request",
    "invalid_request",
  ],
  [
    "a page instead of a film",
    content,
    [head("200 OK\r\ncontent-type: text/html\r\ncontent-length: 2", "hi")],
    "invalid",
    "upstream_invalid",
  ],
  [
    "a film that is cut",
    content,
    [
      head("200 OK\r\ncontent-type: video/mp4\r\ncontent-length: 99", "film"),
      CLOSE,
    ],
    "truncated",
    "upstream_truncated",
  ],
  [
    "a film that stalls",
    content,
    [
      head("200 OK\r\ncontent-type: video/mp4\r\ncontent-length: 99", "film"),
      STALL,
    ],
    "timeout",
    "upstream_timeout",
  ],
  [
    "a range beyond the end",
    content,
    json({}, "416 No"),
    "request",
    "invalid_request",
  ],
];

Deno.test("an engine that answers wrongly is a clear error", async () => {
  for (const [what, request, reply, fault, code] of faults) {
    await using t = startEngine(() => reply, {
      deadlines: { first_token_ms: 200, between_tokens_ms: 200 },
    });
    const { error } = await run(t.engine, request);
    assert.ok(
      error instanceof UpstreamError,
      `${what}: ${Deno.inspect(error)}`,
    );
    assert.deepEqual([error.fault, error.code], [fault, code], what);
  }
});

Deno.test("a model server that cannot delete, or has nothing to delete, is told from one that has deleted", async () => {
  for (
    const [status, code] of [
      ["204 No Content", null],
      ["404 Not Found", "not_found"],
      ["405 No", "not_found"],
      ["501 No", "not_found"],
    ] as const
  ) {
    await using t = startEngine(() => [head(`${status}\r\ncontent-length: 0`)]);
    const { error, text } = await run(t.engine, { ...job, action: "delete" });
    const told = error instanceof UpstreamError ? error.code : error;
    const expected = [code, code === null ? "null" : ""];
    assert.deepEqual([told, text], expected, status);
  }
  await using t = startEngine(() => json({}, "500 No"));
  assert.notEqual(
    (await run(t.engine, { ...job, action: "delete" })).error,
    null,
  );
});

Deno.test("a film is passed on as its engine sends it, with the part that was asked for", async () => {
  const asked: FakeRequest[] = [];
  await using t = startEngine((request) => {
    asked.push(request);
    return film('206 Partial\r\ncontent-range: bytes 0-2999/9000\r\netag: "a"');
  });
  const range = { range: "bytes=0-2999", "if-range": '"a"' };
  const call = recordCall();
  const { error, type, body } = await run(
    t.engine,
    { ...content, range },
    call,
  );
  assert.equal(error, null);
  assert.equal(type, "video/mp4");
  assert.deepEqual(call.head(), {
    ...{ content_type: "video/mp4", status: 206 },
    headers: {
      "content-range": "bytes 0-2999/9000",
      ...{ "content-length": "3000", etag: '"a"' },
    },
  });
  assert.ok(body.equals(FILM));
  const [sent] = asked;
  for (const [name, value] of Object.entries(range)) {
    assert.equal(sent?.headers.get(name), value);
  }
});

Deno.test("a film that its engine only points to is fetched from the engine, and from no other server", async () => {
  let strangers = 0;
  await using stranger = startFakeModelServer({
    reply: () => {
      strangers += 1;
      return film();
    },
  });
  const rows: [url: string, code: string | null][] = [
    ["/files/v.mp4", null],
    ["", "not_found"],
    ["/gone.mp4", "not_found"],
    [`http://127.0.0.1:${stranger.port}/v.mp4`, "upstream_invalid"],
    ["//127.0.0.1/v.mp4", "upstream_invalid"],
    ["file:///etc/passwd", "upstream_invalid"],
  ];
  for (const [url, code] of rows) {
    const reply: Reply = ({ path }) => {
      if (path === "/files/v.mp4") return film();
      return path === "/v1/videos/v%2F1%3F"
        ? json({ id: "v", status: "completed", url })
        : json({ detail: "Not Found" }, "404 Not Found");
    };
    await using t = startEngine(reply);
    const { error, body } = await run(t.engine, content);
    if (code === null) assert.ok(body.equals(FILM), Deno.inspect(error));
    else {
      assert.ok(error instanceof UpstreamError, url);
      assert.equal(error.code, code, url);
    }
  }
  assert.equal(strangers, 0);
});

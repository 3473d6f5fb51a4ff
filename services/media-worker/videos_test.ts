// Promise: whatever a model server says about a video becomes one form or a clear
// error, and nothing is fetched from anywhere but that server.
import assert from "node:assert/strict";
import type { VideoRequest } from "@gateway/shared/openai/media";
import { UpstreamError } from "@gateway/shared/upstream/http/errors";
import {
  startScriptedServer,
  type Step,
} from "../../tests/support/model_servers/scripted_server.ts";
import * as modelAnswers from "../../tests/support/model_servers/model_answers.ts";
import { recordContext } from "../../tests/support/model_servers/recorded_context.ts";
import { codeOf, formOf, startServer } from "./server_fixture.ts";

const ABOUT = { kind: "video", model: "ours", stream: false } as const;
const create: VideoRequest = {
  ...ABOUT,
  action: "create",
  prompt: "A fox",
  seconds: "8",
  secondsLeast: 0,
  fields: { seconds: "8" },
};
const job = { ...ABOUT, backend: "openai-1", id: "v/1?" } as const;
const retrieve: VideoRequest = { ...job, action: "retrieve" };
const remix: VideoRequest = {
  ...job,
  action: "remix",
  prompt: "Blue",
  fields: {},
};
const remove: VideoRequest = { ...job, action: "delete" };
const content: VideoRequest = {
  ...job,
  action: "content",
  variant: "video",
  range: {},
};
const FILM = new Uint8Array(3_000).fill(7);
const json = (body: unknown, status = 200) =>
  modelAnswers.jsonResponse(body, { status });
const film = (lines = "200 OK") => [
  modelAnswers.head(
    `${lines}\r\ncontent-type: video/mp4\r\ncontent-length: 3000`,
    FILM,
  ),
];

Deno.test("a job is started with a form, and asked about under its escaped name", async () => {
  const state = { id: "v/1?", status: "queued", seconds: 8, extra: [1] };
  await using r = startServer(({ method }) =>
    json(state, method === "POST" ? 201 : 200)
  );
  const image = { field: "input_reference", name: "a.png", type: "image/png" };
  const outcome = await r.run(
    { ...create, fields: { seconds: "8", size: "64x64", fps: "24" } },
    recordContext({ files: [{ ...image, content: FILM }] }),
  );
  assert.equal(outcome.error, null);
  assert.deepEqual(JSON.parse(outcome.text), {
    backend: "openai-1",
    id: "v/1?",
    status: "queued",
    progress: 0,
    completed_at: null,
    expires_at: null,
    seconds: "8",
    size: null,
    error: null,
    more: { extra: [1] },
  });
  assert.deepEqual(await formOf(await r.peer.request(1)), [
    ["model", "theirs"],
    ["prompt", "A fox"],
    ["seconds", "8"],
    ["size", "64x64"],
    ["fps", "24"],
    ["input_reference", "image/png", "a.png"],
  ]);
  for (const request of [retrieve, remix, remove]) await r.run(request);
  assert.deepEqual(
    r.peer.requests.map(({ method, path }) => `${method} ${path}`),
    [
      "POST /v1/videos",
      "GET /v1/videos/v%2F1%3F",
      "POST /v1/videos/v%2F1%3F/remix",
      "DELETE /v1/videos/v%2F1%3F",
    ],
  );
});

const running = { status: "processing" };
const completed = { status: "completed" };
const SIZED = { seconds: "8", size: "1x1" };
const failed = (message: string, code = "video_failed") => (
  { status: "failed", error: { code, message } }
);
const NO_SECONDS = [-1, 0, "-1", "Infinity", "1e300", "8s", null];
const states: [state: object, result: object][] = [
  [{ status: "pending" }, { status: "queued" }],
  [{ status: "RUNNING" }, { status: "in_progress" }],
  [{ ...running, progress: 41.9 }, { progress: 41 }],
  [{ ...running, progress: 120 }, { progress: 99 }],
  [{ ...running, progress: null }, { progress: 0 }],
  [{ status: "succeeded", progress: 3 }, { ...completed, progress: 100 }],
  [{ ...completed, completed_at: 5.7 }, { completed_at: 5 }],
  [{ ...completed, expires_at: "soon" }, { expires_at: null }],
  [{ ...completed, ...SIZED }, SIZED],
  ...NO_SECONDS.map((
    seconds,
  ): [object, object] => [{ ...completed, seconds }, { seconds: null }]),
  [
    { status: "cancelled" },
    failed("The model server could not make this video."),
  ],
  [{ status: "failed", error: { code: "nsfw", message: "theirs says no" } }, {
    ...failed("ours says no", "nsfw"),
  }],
  [{ status: "failed", error: "Out of memory" }, failed("Out of memory")],
];

Deno.test("the states of a video are converted to one form", async () => {
  for (const [state, result] of states) {
    await using r = startServer(() => json({ id: "v", ...state }));
    const { error, text } = await r.run(retrieve);
    assert.equal(error, null, Deno.inspect(state));
    assert.partialDeepStrictEqual(JSON.parse(text), result);
  }
});

type Fault = { name: string; request: VideoRequest; reply: Step[] };
const part = (type: string) =>
  modelAnswers.head(
    `200 OK\r\ncontent-type: ${type}\r\ncontent-length: 99`,
    "film",
  );
const queued = { status: "queued" };
const refused = { message: "Bad", type: "invalid_request_error" };
const faults: { [code: string]: Fault[] } = {
  upstream_invalid: [
    { name: "garbage", request: create, reply: json("<html>") },
    { name: "no status", request: create, reply: json({ id: "v" }) },
    {
      name: "an unknown status",
      request: retrieve,
      reply: json({ id: "v", status: "odd" }),
    },
    { name: "no id", request: create, reply: json(queued) },
    {
      name: "a path as id",
      request: create,
      reply: json({ ...queued, id: ".." }),
    },
    {
      name: "an id for no address",
      request: create,
      reply: json('{"id":"\\ud800","status":"queued"}'),
    },
    {
      name: "too much",
      request: retrieve,
      reply: json({ ...queued, x: "x".repeat(300_000) }),
    },
    {
      name: "a page instead of a film",
      request: content,
      reply: [
        modelAnswers.typed("text/html"),
        modelAnswers.chunk("<p>abc"),
        modelAnswers.lastChunk,
      ],
    },
    {
      name: "an error under the label of a film",
      request: content,
      reply: [
        modelAnswers.typed("video/mp4"),
        modelAnswers.chunk('{"detail":"Gone"}'),
        modelAnswers.lastChunk,
      ],
    },
  ],
  invalid_request: [
    {
      name: "an error with 200",
      request: create,
      reply: json({ error: refused }),
    },
    {
      name: "FastAPI's detail",
      request: create,
      reply: json({ detail: "Bad size" }, 422),
    },
    {
      name: "no remix",
      request: remix,
      reply: json({ detail: "Not Found" }, 404),
    },
    { name: "no method for remix", request: remix, reply: json({}, 405) },
    { name: "a range beyond the end", request: content, reply: json({}, 416) },
  ],
  not_found: [
    {
      name: "no such video",
      request: retrieve,
      reply: json({ detail: "Video not found" }, 404),
    },
    { name: "nothing to delete", request: remove, reply: json({}, 404) },
    { name: "no method to delete", request: remove, reply: json({}, 405) },
    { name: "no way to delete", request: remove, reply: json({}, 501) },
  ],
  upstream_timeout: [
    {
      name: "a film that stalls",
      request: content,
      reply: [part("video/mp4"), modelAnswers.STALL],
    },
  ],
  upstream_truncated: [
    {
      name: "a film that is cut",
      request: content,
      reply: [part("video/mp4"), modelAnswers.CLOSE],
    },
  ],
  upstream_error: [{
    name: "a failed deletion",
    request: remove,
    reply: json({}, 500),
  }],
};

for (const [code, cases] of Object.entries(faults)) {
  Deno.test(`a wrong answer about a video becomes the error ${code}`, async () => {
    for (const { name, request, reply } of cases) {
      await using r = startServer(() => reply, {
        deadlines: { first_token_ms: 200, between_tokens_ms: 200 },
      });
      const { error } = await r.run(request);
      assert.ok(error instanceof UpstreamError, name);
      assert.equal(error.code, code, name);
    }
  });
}

Deno.test("the deletion of a job is answered with null", async () => {
  await using r = startServer(() => [
    modelAnswers.head("204 No Content\r\ncontent-length: 0"),
  ]);
  const { error, text } = await r.run(remove);
  assert.deepEqual([error, text], [null, "null"]);
});

Deno.test("a film is passed on as its server sends it, with the part that was asked for", async () => {
  await using r = startServer(() =>
    film('206 Partial\r\ncontent-range: bytes 0-2999/9000\r\netag: "a"')
  );
  const range = { range: "bytes=0-2999", "if-range": '"a"' };
  const { error, head, body } = await r.run({ ...content, range });
  assert.equal(error, null);
  assert.deepEqual(head, {
    content_type: "video/mp4",
    status: 206,
    headers: {
      "content-range": "bytes 0-2999/9000",
      "content-length": "3000",
      etag: '"a"',
    },
  });
  assert.ok(body.equals(FILM));
  const { headers } = await r.peer.request(1);
  for (const [name, value] of Object.entries(range)) {
    assert.equal(headers.get(name), value);
  }
});

Deno.test("a film behind a URL is fetched from its own server, and from no other", async () => {
  await using stranger = startScriptedServer({ reply: () => film() });
  const rows: [url: string, code: string | null][] = [
    ["/files/v.mp4", null],
    ["", "not_found"],
    ["/gone.mp4", "not_found"],
    [`http://127.0.0.1:${stranger.port}/v.mp4`, "upstream_invalid"],
    ["//127.0.0.1/v.mp4", "upstream_invalid"],
    ["file:///etc/passwd", "upstream_invalid"],
  ];
  for (const [url, code] of rows) {
    await using r = startServer(({ path }) => {
      if (path === "/files/v.mp4") return film();
      return path === "/v1/videos/v%2F1%3F"
        ? json({ id: "v", status: "completed", url })
        : json({ detail: "Not Found" }, 404);
    });
    const { error, body } = await r.run(content);
    if (code === null) assert.ok(body.equals(FILM), Deno.inspect(error));
    else assert.equal(codeOf(error), code, url);
  }
  assert.equal(stranger.requests.length, 0);
});

/**
 * Guarantee: whatever a client calls a model, rights, limits, usage and workers know it
 * by its id, and a key sees only the names of models that it may use.
 */
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { MODEL_KINDS } from "@gateway/shared/models/kinds";
import { randomBytes } from "@gateway/shared/process/ids";
import { startApp } from "../app_fixture.ts";
import { RunOutcome } from "../dispatch/outcome.ts";
import { leaseOf } from "./lease_fixture.ts";

const KEY = mintKey(randomBytes);
const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };
const CATALOG = parseCatalog({
  models: MODEL_KINDS.map((kind) => ({
    id: `${kind}-model`,
    kind,
    aliases: [`${kind}-name`, `${kind}-names-*`],
    backends: [{
      type: "openai",
      base_url: "http://127.0.0.1:9/v1",
      model: "theirs",
      ...kind === "chat" && { dialect: "vllm" },
    }],
  })),
});

/** An edge that writes down which models it is asked for. */
async function setup(allowed: readonly string[] = []) {
  const models: (string | null)[] = [];
  const failed: (string | null)[] = [];
  const app = await startApp({
    catalog: CATALOG,
    keys: { find: () => Promise.resolve(PRINCIPAL) },
    failedRequests: { add: (_, { model }) => void failed.push(model) },
    admission: {
      admit(_, { model }) {
        models.push(model);
        return Promise.resolve(leaseOf(PRINCIPAL, { model }));
      },
      modelsOf: () => Promise.resolve(allowed),
      checkRefused: () => Promise.resolve(),
    },
    dispatcher: {
      isStoppedSince: () => false,
      start({ model }, sink, onEnded) {
        models.push(model);
        queueMicrotask(() => {
          sink.onAbandoned();
          onEnded(new RunOutcome());
        });
        return { delivered: () => {}, cancel: () => {} };
      },
    },
  });
  const call = (path: string, init: RequestInit = {}) =>
    fetch(`${app.origin}${path}`, {
      ...init,
      headers: { authorization: `Bearer ${KEY}`, ...init.headers },
    });
  return {
    ...app,
    models,
    failed,
    call,
    list: async (headers: HeadersInit = {}) => {
      const { data } = await (await call("/v1/models", { headers })).json();
      return data.map(({ id }: { id: string }) => id);
    },
  };
}

const messages = [{ role: "user", content: "Hi" }];
const file = new Blob(["RIFF"]);

/** What is sent to each path, but for the model: JSON, or a form. */
const REQUESTS: { path: string; kind: string; body: object }[] = [
  { path: "/v1/chat/completions", kind: "chat", body: { messages } },
  { path: "/v1/messages", kind: "chat", body: { messages, max_tokens: 1 } },
  { path: "/v1/messages/count_tokens", kind: "chat", body: { messages } },
  { path: "/v1/responses", kind: "chat", body: { input: "Hi" } },
  { path: "/v1/completions", kind: "chat", body: { prompt: "Hi" } },
  { path: "/v1/embeddings", kind: "embedding", body: { input: "Hi" } },
  {
    path: "/v1/rerank",
    kind: "rerank",
    body: { query: "a", documents: ["b"] },
  },
  { path: "/v1/images/generations", kind: "image", body: { prompt: "a" } },
  {
    path: "/v1/audio/speech",
    kind: "speech",
    body: { input: "a", voice: "v" },
  },
  { path: "/v1/videos", kind: "video", body: { prompt: "a" } },
];

for (const { path, kind, body } of REQUESTS) {
  for (const name of [`${kind}-name`, `${kind}-names-7`]) {
    Deno.test(`POST ${path} with the alias '${name}' runs under the id`, async () => {
      await using edge = await setup();
      await edge.call(path, {
        method: "POST",
        body: JSON.stringify({ ...body, model: name }),
        headers: { "content-type": "application/json" },
      }).catch(() => {}); // The connection is closed: nobody answers.
      assert.ok(edge.models.length > 0);
      assert.deepEqual(new Set(edge.models), new Set([`${kind}-model`]));
    });
  }
}

for (const order of ["before", "after"] as const) {
  Deno.test(`an upload with an alias ${order} its file runs under the id`, async () => {
    await using edge = await setup();
    const form = new FormData();
    if (order === "before") form.set("model", "transcription-name");
    form.set("file", file, "a.wav");
    if (order === "after") form.set("model", "transcription-names-1");
    const path = "/v1/audio/transcriptions";
    await edge.call(path, { method: "POST", body: form }).catch(() => {});
    const id = "transcription-model";
    assert.ok(edge.models.every((each) => each === null || each === id));
    assert.equal(edge.models.at(-1), id);
  });
}

Deno.test("an alias of a model of another kind is refused as that model is", async () => {
  await using edge = await setup();
  const answer = await edge.call("/v1/embeddings", {
    method: "POST",
    body: JSON.stringify({ model: "chat-name", input: "a" }),
    headers: { "content-type": "application/json" },
  });
  assert.equal(answer.status, 404);
  const { error } = await answer.json();
  assert.match(error.message, /`chat-model`.*\/v1\/chat\/completions/);
});

Deno.test("GET /v1/models lists names of models that the key may use, in both forms", async () => {
  await using all = await setup();
  const every = MODEL_KINDS.flatMap((
    kind,
  ) => [`${kind}-model`, `${kind}-name`]);
  assert.deepEqual(await all.list(), every);
  await using one = await setup(["chat-model"]);
  const own = ["chat-model", "chat-name"];
  assert.deepEqual(await one.list(), own);
  assert.deepEqual(await one.list({ "anthropic-version": "2023-06-01" }), own);
});

Deno.test("GET /v1/models in Anthropic's form is read in pages, forwards and backwards", async () => {
  await using edge = await setup(["chat-model", "image-model"]);
  const [a = "", b = "", c = "", d = ""] = await edge.list();
  const headers = { "anthropic-version": "2023-06-01" };
  const cases = [
    { query: "", ids: [a, b, c, d], more: false },
    { query: "limit=1000&beta=true", ids: [a, b, c, d], more: false },
    { query: "limit=3", ids: [a, b, c], more: true },
    { query: "limit=4", ids: [a, b, c, d], more: false },
    { query: `limit=3&after_id=${c}`, ids: [d], more: false },
    { query: `after_id=${d}`, ids: [], more: false },
    { query: `limit=1&before_id=${c}`, ids: [b], more: true },
    { query: `limit=2&before_id=${c}`, ids: [a, b], more: false },
    { query: `limit=1&after_id=${a}&before_id=${d}`, ids: [b], more: true },
  ];
  for (const { query, ids, more } of cases) {
    const answer = await edge.call(`/v1/models?${query}`, { headers });
    const { data, ...page } = await answer.json();
    assert.deepEqual(data.map(({ id }: { id: string }) => id), ids, query);
    const last_id = ids.at(-1) ?? null;
    const first_id = ids[0] ?? null;
    assert.deepEqual(page, { has_more: more, first_id, last_id }, query);
  }
  const wrong = [
    "limit=0",
    "limit=1001",
    "limit=few",
    "limit=1.5",
    "after_id=other",
    "before_id=video-model",
  ];
  for (const query of wrong) {
    const answer = await edge.call(`/v1/models?${query}`, { headers });
    assert.equal(answer.status, 400, query);
    const { type, error } = await answer.json();
    assert.equal(`${type} ${error.type}`, "error invalid_request_error");
    assert.match(error.message, /'(limit|after_id|before_id)'/);
    // OpenAI's list has no pages, so it has no such query.
    const all = await edge.call(`/v1/models?${query}`);
    assert.equal((await all.json()).data.length, 4);
  }
});

Deno.test("GET /v1/models/{alias} answers for names of models that the key may use", async () => {
  await using edge = await setup(["chat-model"]);
  for (const name of ["chat-model", "chat-name", "chat-names-of-any-kind"]) {
    const answer = await edge.call(`/v1/models/${name}`);
    assert.equal((await answer.json()).id, name);
  }
  const headers = { "anthropic-version": "2023-06-01" };
  const answer = await edge.call("/v1/models/chat-name", { headers });
  assert.partialDeepStrictEqual(await answer.json(), {
    type: "model",
    id: "chat-name",
  });
  for (const name of ["image-name", "image-names-1", "chat", "chat-names-*x"]) {
    const answer = await edge.call(`/v1/models/${name}`);
    const expected = name === "chat-names-*x" ? 200 : 404;
    assert.equal(answer.status, expected, name);
    await answer.body?.cancel();
  }
});

// Further paths of a model server are forwarded to the byte, with the rights and the
// limits of requests of their keys, and no others exist.
import assert from "node:assert/strict";
import { ROUTES } from "../../services/edge-auth/app.ts";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { UNLIMITED, usageKey } from "@gateway/shared/keys/record";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { ConfigError } from "@gateway/shared/process/env";
import { callApi } from "../support/chat_request.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { TestKey } from "../support/gateway/limited.ts";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { startScriptedServer } from "../support/model_servers/scripted_server.ts";

const ANSWER = '[ {"tokens":[1.0, 12345678901234567890]} ]\n';

async function setup() {
  await using starting = new AsyncDisposableStack();
  const server = starting.use(startScriptedServer({
    reply: ({ body }) =>
      body.includes("refuse")
        ? jsonResponse('{"detail":"no such text"}', { status: 422 })
        : jsonResponse(ANSWER),
  }));
  const backends = [{
    type: "openai" as const,
    base_url: server.baseUrl,
    model: "theirs",
    forward_paths: ["/tokenize", "/v1/moderations"],
  }];
  const plain = [{
    type: "openai" as const,
    base_url: server.baseUrl,
    model: "b",
  }];
  const catalog = parseCatalog({
    models: [
      { id: "talk", aliases: ["gpt-*"], backends },
      { id: "embed", kind: "embedding", backends },
      { id: "plain", backends: plain },
    ],
  });
  const gateway = starting.use(await startGateway("limited", { catalog }));
  const origin = gateway.baseUrl().replace(/\/v1$/, "");
  const running = starting.move();
  return {
    gateway,
    server,
    origin,
    post: ({ value }: TestKey, path: string, body: string) =>
      fetch(`${origin}${path}`, {
        method: "POST",
        body,
        headers: {
          authorization: `Bearer ${value}`,
          "content-type": "application/json",
        },
      }),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

Deno.test("a further path is forwarded to the byte, wherever its server has it", async () => {
  await using rig = await setup();
  const key = await rig.gateway.addKey();
  const body = (model: string) =>
    `{ "b": 1.0, "model":${model} ,"text":"\\u00e9", "n":12345678901234567890}`;
  for (const path of ["/tokenize", "/v1/moderations", "/tokenize?a=../b"]) {
    const answer = await rig.post(key, path, body('"gpt-x"'));
    assert.equal(await answer.text(), ANSWER);
    assert.equal(answer.headers.get("content-type"), "application/json");
  }
  assert.deepEqual(
    rig.server.requests.map(({ path }) => path),
    ["/tokenize", "/v1/moderations", "/tokenize"],
  );
  for (const request of rig.server.requests) {
    assert.equal(request.body, body('"theirs"'));
  }
});

Deno.test("a further path has limits of requests, and costs no tokens", async () => {
  await using rig = await setup();
  const limits = { ...UNLIMITED, requestsPerMinute: 2, tokensPerMinute: 1 };
  const key = await rig.gateway.addKey({ limits });
  const text = '{"model":"talk","prompt":"many more words than one token"}';
  const ask = async () => {
    const answer = await rig.post(key, "/tokenize", text);
    await answer.body?.cancel();
    return answer.status;
  };
  assert.deepEqual([await ask(), await ask(), await ask()], [200, 200, 429]);
  await rig.gateway.settled(key);
  const day = usageKey(key, usageDay(await rig.gateway.world.time()));
  const counts = await rig.gateway.world.command("HGETALL", day);
  assert.ok(Array.isArray(counts));
  const fields = counts.filter((_, index) => index % 2 === 0).map(String);
  assert.ok(fields.some((field) => /:req:talk$/.test(field)), `${fields}`);
  assert.ok(!fields.some((field) => /:(in|out):/.test(field)), `${fields}`);
});

const REFUSED: {
  title: string;
  rights: { scopes?: string; models?: string };
  path: string;
  body: string;
  status: number;
  message: RegExp;
}[] = [
  {
    title: "a key without the scope",
    rights: { scopes: "embedding" },
    path: "/tokenize",
    body: '{"model":"talk"}',
    status: 403,
    message: /forbidden/,
  },
  {
    title: "a key without the model",
    rights: { models: "plain" },
    path: "/tokenize",
    body: '{"model":"talk"}',
    status: 403,
    message: /forbidden/,
  },
  {
    title: "a key without the model, which lacks the path",
    rights: { models: "talk" },
    path: "/tokenize",
    body: '{"model":"plain"}',
    status: 403,
    message: /not allowed to use this model/,
  },
  {
    title: "a key without the scope of any model that has the path",
    rights: { scopes: "image" },
    path: "/tokenize",
    body: "[1]",
    status: 403,
    message: /not allowed to use this endpoint/,
  },
  {
    title: "a key for one kind of model, and a fault in the body",
    rights: { scopes: "embedding" },
    path: "/tokenize",
    body: '{"model":"embed","stream":true}',
    status: 400,
    message: /whole answers/,
  },
  {
    title: "a key for one kind of model, and a body that names none",
    rights: { scopes: "embedding" },
    path: "/tokenize",
    body: "[1]",
    status: 400,
    message: /object/,
  },
  {
    title: "a key for one kind of model, and a fault in the body for another",
    rights: { scopes: "embedding" },
    path: "/tokenize",
    body: '{"model":"talk","stream":true}',
    status: 403,
    message: /not allowed to use this endpoint/,
  },
  {
    title: "a model without the path",
    rights: {},
    path: "/tokenize",
    body: '{"model":"plain"}',
    status: 400,
    message: /forward_paths/,
  },
  {
    title: "no model",
    rights: {},
    path: "/tokenize",
    body: '{"prompt":"a"}',
    status: 400,
    message: /model/,
  },
  {
    title: "an unknown model",
    rights: {},
    path: "/tokenize",
    body: '{"model":"other"}',
    status: 404,
    message: /model_not_found/,
  },
  {
    title: "a body that is a list",
    rights: {},
    path: "/tokenize",
    body: "[1]",
    status: 400,
    message: /object/,
  },
  {
    title: "two models",
    rights: {},
    path: "/tokenize",
    body: '{"model":"talk","model":"plain"}',
    status: 400,
    message: /repeated/,
  },
  {
    title: "a stream",
    rights: {},
    path: "/tokenize",
    body: '{"model":"talk","stream":true}',
    status: 400,
    message: /whole answers/,
  },
  {
    title: "an address",
    rights: {},
    path: "/tokenize",
    body: '{"model":"talk","x":[{"image_url":{"url":"http://a"}}]}',
    status: 400,
    message: /fetches_urls/,
  },
  {
    title: "an address of the body itself, image_url",
    rights: {},
    path: "/tokenize",
    body: '{"model":"talk","image_url":"http://a"}',
    status: 400,
    message: /fetches_urls/,
  },
  {
    title: "an address of the body itself, url",
    rights: {},
    path: "/tokenize",
    body: '{"model":"talk","url":"http://a"}',
    status: 400,
    message: /fetches_urls/,
  },
  {
    title: "a field that never passes",
    rights: {},
    path: "/tokenize",
    body: '{"model":"talk","cache_salt":"a"}',
    status: 400,
    message: /cache_salt/,
  },
  {
    title: "what the server refuses",
    rights: {},
    path: "/tokenize",
    body: '{"model":"talk","a":"refuse"}',
    status: 422,
    message: /no such text/,
  },
  {
    title: "a path that no server has",
    rights: {},
    path: "/v1/score",
    body: '{"model":"talk"}',
    status: 404,
    message: /Invalid URL/,
  },
  {
    title: "a path above",
    rights: {},
    path: "/v1/tokenize",
    body: '{"model":"talk"}',
    status: 404,
    message: /Invalid URL/,
  },
  {
    title: "a path below",
    rights: {},
    path: "/tokenize/x",
    body: '{"model":"talk"}',
    status: 404,
    message: /Invalid URL/,
  },
];

for (const { title, rights, path, body, status, message } of REFUSED) {
  Deno.test(`POST ${path} with ${title} gets ${status}`, async () => {
    await using rig = await setup();
    const key = await rig.gateway.addKey(rights);
    const answer = await rig.post(key, path, body);
    assert.equal(answer.status, status);
    assert.match(await answer.text(), message);
    assert.equal(rig.server.requests.length, status === 422 ? 1 : 0);
  });
}

Deno.test("a further path needs a key, and the scope of its model's kind", async () => {
  await using rig = await setup();
  const unknown = await callApi(`${rig.origin}/tokenize`, "sk-none", {
    body: {},
  });
  assert.equal(unknown.status, 401);
  await unknown.body?.cancel();
  const embedding = await rig.gateway.addKey({ scopes: "embedding" });
  const answer = await rig.post(embedding, "/tokenize", '{"model":"embed"}');
  assert.equal(await answer.text(), ANSWER);
  const read = await callApi(`${rig.origin}/tokenize`, embedding.value);
  assert.equal(read.status, 405);
  assert.equal(read.headers.get("allow"), "POST, OPTIONS");
  await read.body?.cancel();
});

const accepts = (path: string) => {
  const backend = { type: "openai", base_url: "http://a/v1", model: "m" };
  const backends = [{ ...backend, forward_paths: [path] }];
  try {
    return parseCatalog({ models: [{ id: "m", backends }] }).size === 1;
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return false;
  }
};

Deno.test("forward_paths has safe paths only, and none of the gateway's own", () => {
  const good = ["/tokenize", "/v1/moderations", "/v2/a-b/c_d.e", "/classify"];
  assert.deepEqual(good.filter((path) => !accepts(path)), []);
  const ours = ROUTES.map(({ path }) =>
    typeof path === "string" ? path : path.source
      .replace(/^\^|\(\?:.*$/g, "").replaceAll("\\/", "/")
      .replace(/\([^)]*\)/, "x").replace(/\$$/, "")
  );
  assert.ok(ours.includes("/v1/videos/x/content"));
  const bad = [
    ...ours,
    "/v1",
    "/health",
    "/healthz",
    "/openapi.json",
    "/V1/Chat/x",
  ];
  const unsafe = [
    "tokenize",
    "/",
    "/a/../b",
    "/a/./b",
    "/a//b",
    "/a?b",
    "/a#b",
    "/a%2fb",
    "/.a",
    "/a b",
    "/a\\b",
    "//a",
    `/${"a".repeat(100)}`,
  ];
  assert.deepEqual([...bad, ...unsafe].filter(accepts), []);
});

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
  for (const sent of rig.server.requests) {
    assert.equal(sent.body, body('"theirs"'));
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

const REFUSED: [
  title: string,
  key: { scopes?: string; models?: string },
  path: string,
  body: string,
  status: number,
  says: RegExp,
][] = [
  [
    "a key without the scope",
    { scopes: "embedding" },
    "/tokenize",
    '{"model":"talk"}',
    403,
    /forbidden/,
  ],
  [
    "a key without the model",
    { models: "plain" },
    "/tokenize",
    '{"model":"talk"}',
    403,
    /forbidden/,
  ],
  [
    "a key without the model, which lacks the path",
    { models: "talk" },
    "/tokenize",
    '{"model":"plain"}',
    403,
    /not allowed to use this model/,
  ],
  [
    "a key without the scope of any model that has the path",
    { scopes: "image" },
    "/tokenize",
    "[1]",
    403,
    /not allowed to use this endpoint/,
  ],
  [
    "a key for one kind of model, and a fault in the body",
    { scopes: "embedding" },
    "/tokenize",
    '{"model":"embed","stream":true}',
    400,
    /whole answers/,
  ],
  [
    "a key for one kind of model, and a body that names none",
    { scopes: "embedding" },
    "/tokenize",
    "[1]",
    400,
    /object/,
  ],
  [
    "a key for one kind of model, and a fault in the body for another",
    { scopes: "embedding" },
    "/tokenize",
    '{"model":"talk","stream":true}',
    403,
    /not allowed to use this endpoint/,
  ],
  [
    "a model without the path",
    {},
    "/tokenize",
    '{"model":"plain"}',
    400,
    /forward_paths/,
  ],
  ["no model", {}, "/tokenize", '{"prompt":"a"}', 400, /model/],
  [
    "an unknown model",
    {},
    "/tokenize",
    '{"model":"other"}',
    404,
    /model_not_found/,
  ],
  ["a body that is a list", {}, "/tokenize", "[1]", 400, /object/],
  [
    "two models",
    {},
    "/tokenize",
    '{"model":"talk","model":"plain"}',
    400,
    /repeated/,
  ],
  [
    "a stream",
    {},
    "/tokenize",
    '{"model":"talk","stream":true}',
    400,
    /whole answers/,
  ],
  [
    "an address",
    {},
    "/tokenize",
    '{"model":"talk","x":[{"image_url":{"url":"http://a"}}]}',
    400,
    /fetches_urls/,
  ],
  [
    "an address of the body itself, image_url",
    {},
    "/tokenize",
    '{"model":"talk","image_url":"http://a"}',
    400,
    /fetches_urls/,
  ],
  [
    "an address of the body itself, url",
    {},
    "/tokenize",
    '{"model":"talk","url":"http://a"}',
    400,
    /fetches_urls/,
  ],
  [
    "a field that never passes",
    {},
    "/tokenize",
    '{"model":"talk","cache_salt":"a"}',
    400,
    /cache_salt/,
  ],
  [
    "what the server refuses",
    {},
    "/tokenize",
    '{"model":"talk","a":"refuse"}',
    422,
    /no such text/,
  ],
  [
    "a path that no server has",
    {},
    "/v1/score",
    '{"model":"talk"}',
    404,
    /Invalid URL/,
  ],
  ["a path above", {}, "/v1/tokenize", '{"model":"talk"}', 404, /Invalid URL/],
  ["a path below", {}, "/tokenize/x", '{"model":"talk"}', 404, /Invalid URL/],
];

for (const [title, options, path, body, status, says] of REFUSED) {
  Deno.test(`POST ${path} with ${title} gets ${status}`, async () => {
    await using rig = await setup();
    const key = await rig.gateway.addKey(options);
    const answer = await rig.post(key, path, body);
    assert.equal(answer.status, status);
    assert.match(await answer.text(), says);
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

// API5, API4: forwarded requests are admitted by the rights and limits of their keys.
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { UNLIMITED, usageKey } from "@gateway/shared/keys/record";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { callApi } from "../support/chat_request.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { TestKey } from "../support/gateway/limited.ts";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { startScriptedServer } from "../support/model_servers/scripted_server.ts";

const ANSWER = '{"data":[{"embedding":[1]}],"usage":{"prompt_tokens":30}}';

async function setup(answer = ANSWER) {
  await using starting = new AsyncDisposableStack();
  const server = starting.use(
    startScriptedServer({ reply: () => jsonResponse(answer) }),
  );
  const backends = [
    { type: "openai" as const, base_url: server.baseUrl, model: "theirs" },
  ];
  const catalog = parseCatalog({
    models: [
      { id: "embed", kind: "embedding", backends },
      {
        id: "talk",
        backends: backends.map((each) => (
          { ...each, dialect: "vllm" as const }
        )),
      },
    ],
  });
  const gateway = starting.use(await startGateway("limited", { catalog }));
  const running = starting.move();
  return {
    gateway,
    server,
    embed: ({ value }: TestKey, input: unknown) =>
      callApi(`${gateway.baseUrl()}/embeddings`, value, {
        body: { model: "embed", input },
      }),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

Deno.test("a key needs the scope 'embedding' for POST /v1/embeddings", async () => {
  await using rig = await setup();
  const chatting = await rig.gateway.addKey({ scopes: "chat,models" });
  const refused = await rig.embed(chatting, "a");
  assert.equal(refused.status, 403);
  assert.equal(refused.headers.get("x-should-retry"), "false");
  await refused.body?.cancel();
  const embedding = await rig.gateway.addKey({ scopes: "embedding" });
  const answer = await rig.embed(embedding, "a");
  assert.equal(await answer.text(), ANSWER);
  assert.equal(rig.server.requests.length, 1);
});

Deno.test("a key learns nothing of a model that it may not use, whatever is wrong with the request", async () => {
  await using rig = await setup();
  const key = await rig.gateway.addKey({
    models: "embed",
    scopes: "chat,embedding",
  });
  const messages = [{ role: "user", content: "Hi" }];
  const bodies = [
    { path: "messages", body: { max_tokens: "many" } },
    { path: "messages", body: { max_tokens: 5, messages } },
    { path: "messages/count_tokens", body: { messages } },
    { path: "responses", body: { previous_response_id: "r", input: "a" } },
    { path: "chat/completions", body: { messages, best_of: 2 } },
    { path: "chat/completions", body: { messages: [] } },
    { path: "embeddings", body: { input: "a" } },
  ];
  for (const { path, body } of bodies) {
    const url = `${rig.gateway.baseUrl()}/${path}`;
    const answer = await callApi(url, key.value, {
      body: { model: "talk", ...body },
    });
    assert.equal(answer.status, 403, `${path}: ${await answer.text()}`);
  }
  assert.equal(rig.server.requests.length, 0);
});

Deno.test("embeddings cost the tokens that their server states, and have the limits of tokens", async () => {
  await using rig = await setup();
  const limits = { ...UNLIMITED, tokensPerMinute: 40 };
  const key = await rig.gateway.addKey({ scopes: "embedding", limits });
  const first = await rig.embed(key, "a");
  assert.equal(await first.text(), ANSWER);
  assert.equal(first.headers.get("x-ratelimit-limit-tokens"), "40");
  await rig.gateway.settled(key);
  const tooMany = await rig.embed(key, Array.from({ length: 20 }, () => 1));
  assert.equal(tooMany.status, 429);
  assert.partialDeepStrictEqual(await tooMany.json(), {
    error: { type: "tokens" },
  });
  const day = usageKey(key, usageDay(await rig.gateway.world.time()));
  const fields = await rig.gateway.world.command("HGETALL", day);
  assert.ok(Array.isArray(fields));
  assert.match(fields.join(" "), /\d\d:in@embeddings:embed 30/);
});

Deno.test("each prompt of a completion has its own answers, which are reserved and counted", async () => {
  const usage = { prompt_tokens: 6, completion_tokens: 60, total_tokens: 66 };
  await using rig = await setup(JSON.stringify({ choices: [], usage }));
  const limits = { ...UNLIMITED, tokensPerMinute: 100 };
  const key = await rig.gateway.addKey({ scopes: "chat", limits });
  const url = `${rig.gateway.baseUrl()}/completions`;
  const prompts = ["a", "b", "c"];
  const ask = (prompt: unknown, n: number) =>
    callApi(url, key.value, {
      body: { model: "talk", prompt, n, max_tokens: 10 },
    });
  const answer = await ask(prompts, 2);
  assert.equal(answer.status, 200);
  await answer.body?.cancel();
  await rig.gateway.settled(key);
  const day = usageDay(await rig.gateway.world.time());
  const fields = await rig.gateway.world.command("HGETALL", usageKey(key, day));
  assert.ok(Array.isArray(fields));
  assert.match(fields.join(" "), /out@completions:talk 60\b/);
  // 34 are left.
  const tooMuch = await ask([[1], [2], [3], [4], [5]], 1);
  assert.equal(tooMuch.status, 429);
  await tooMuch.body?.cancel();
});

Deno.test("usage has the endpoint, and apart what was read from a cache and written to it", async () => {
  const usage = {
    input_tokens: 5,
    cache_read_input_tokens: 80,
    cache_creation_input_tokens: 10,
    output_tokens: 7,
  };
  await using rig = await setup(JSON.stringify({ type: "message", usage }));
  const key = await rig.gateway.addKey({ scopes: "chat" });
  const messages = [{ role: "user", content: "hi" }];
  const url = `${rig.gateway.baseUrl()}/messages`;
  const body = { model: "talk", max_tokens: 9, messages };
  const answer = await callApi(url, key.value, { body });
  assert.equal(answer.status, 200);
  await answer.body?.cancel();
  await rig.gateway.settled(key);
  const day = usageDay(await rig.gateway.world.time());
  const fields = await rig.gateway.world.command("HGETALL", usageKey(key, day));
  assert.ok(Array.isArray(fields));
  const counted = fields.join(" ");
  const expected = [
    "req@messages:talk 1",
    "in@messages:talk 95",
    "out@messages:talk 7",
    "cin@messages:talk 80",
    "cwr@messages:talk 10",
  ];
  for (const count of expected) assert.ok(counted.includes(count), counted);
});

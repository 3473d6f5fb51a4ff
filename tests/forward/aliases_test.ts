// A request under an alias reaches the model server and Redis under the model's names.
import assert from "node:assert/strict";
import { parseUsageField, usageDay } from "@gateway/shared/keys/limiter_state";
import { usageKey } from "@gateway/shared/keys/record";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { callApi } from "../support/chat_request.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { startScriptedServer } from "../support/model_servers/scripted_server.ts";

const CHAT = {
  id: "c",
  object: "chat.completion",
  created: 1,
  model: "theirs",
  choices: [{
    index: 0,
    message: { role: "assistant", content: "Hello" },
    finish_reason: "stop",
  }],
  usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
};
const MESSAGE =
  '{"id":"m","type":"message","role":"assistant","model":"theirs",' +
  '"content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn",' +
  '"usage":{"input_tokens":5,"output_tokens":2}}';

async function setup() {
  await using starting = new AsyncDisposableStack();
  const server = starting.use(startScriptedServer({
    reply: ({ path }) =>
      jsonResponse(path.endsWith("/messages") ? MESSAGE : JSON.stringify(CHAT)),
  }));
  const backends = [{
    type: "openai" as const,
    base_url: server.baseUrl,
    model: "theirs",
    dialect: "vllm" as const,
  }];
  const catalog = parseCatalog({
    models: [
      { id: "qwen", aliases: ["claude-haiku-*", "gpt-4o"], backends },
      { id: "large", aliases: ["claude-*"], backends },
    ],
  });
  const gateway = starting.use(await startGateway("limited", { catalog }));
  const running = starting.move();
  return {
    gateway,
    server,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

const messages = [{ role: "user", content: "Hi" }];

Deno.test("requests under aliases have the rights and the usage of their model", async () => {
  await using rig = await setup();
  const { gateway, server } = rig;
  const key = await gateway.addKey({ models: "qwen" });
  const ask = (path: string, model: string) =>
    callApi(`${gateway.baseUrl()}${path}`, key.value, {
      body: { model, messages, max_tokens: 4 },
    });
  const chat = await ask("/chat/completions", "gpt-4o");
  assert.equal((await chat.json()).model, "qwen");
  const message = await ask("/messages", "claude-haiku-4-5");
  assert.equal(await message.text(), MESSAGE);
  const other = await ask("/messages", "claude-opus-4");
  assert.equal(other.status, 403);
  await other.body?.cancel();
  assert.deepEqual(
    server.requests.map(({ body }) => JSON.parse(body).model),
    ["theirs", "theirs"],
  );
  await gateway.settled(key);
  const day = usageKey(key, usageDay(await gateway.world.time()));
  const fields = await gateway.world.command("HKEYS", day);
  assert.ok(Array.isArray(fields));
  const models = fields.map((field) => parseUsageField(String(field))?.model);
  assert.deepEqual(new Set(models), new Set(["qwen"]));
});

// Requests of one conversation reach the same of several equal model servers, whatever
// endpoint they use, as long as it answers.
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { randomBytes } from "@gateway/shared/process/ids";
import { startGateway } from "../support/gateway/gateway.ts";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { startScriptedServer } from "../support/model_servers/scripted_server.ts";

const KEY = mintKey(randomBytes);
const ANSWER = JSON.stringify({
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
});

async function setup() {
  await using starting = new AsyncDisposableStack();
  let isBroken = false;
  const servers = [0, 1, 2].map((index) =>
    starting.use(startScriptedServer({
      reply: () =>
        isBroken && index === favourite
          ? [{ send: "HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n" }]
          : jsonResponse(ANSWER),
    }))
  );
  let favourite = -1;
  const catalog = parseCatalog({
    models: [{
      id: "talk",
      backends: servers.map(({ baseUrl }) => ({
        type: "openai" as const,
        base_url: baseUrl,
        model: "theirs",
        dialect: "vllm" as const,
      })),
    }],
  });
  const door = { catalog };
  const gateway = starting.use(
    await startGateway("open", { door, slower: 20 }),
  );
  await gateway.addWorker({ baseUrl: "" }, { catalog });
  const running = starting.move();
  const ask = async (path: string, body: object, headers: HeadersInit = {}) => {
    const answer = await fetch(`${gateway.baseUrl()}${path}`, {
      method: "POST",
      body: JSON.stringify({ model: "talk", max_tokens: 9, ...body }),
      headers: {
        authorization: `Bearer ${KEY}`,
        "content-type": "application/json",
        ...headers,
      },
    });
    await answer.body?.cancel();
    return answer.status;
  };
  return {
    ask,
    counts: () => servers.map(({ requests }) => requests.length),
    breakFavourite(index: number) {
      favourite = index;
      isBroken = true;
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

const messages = [{ role: "user", content: "Hi" }];

Deno.test("all requests of a session go to one server, and sessions to all of them", async () => {
  await using rig = await setup();
  const session = { "x-claude-code-session-id": "one" };
  for (let turn = 0; turn < 4; turn++) {
    const more = Array(turn).fill(messages[0]);
    await rig.ask("/messages", { messages: [...messages, ...more] }, session);
    await rig.ask("/chat/completions", { messages, prompt_cache_key: "one" });
  }
  const used = rig.counts().filter((count) => count > 0);
  assert.deepEqual(used, [8]);
  for (let index = 0; index < 30; index++) {
    await rig.ask("/responses", { input: `Question ${index}` });
  }
  assert.ok(rig.counts().every((count) => count >= 3), `${rig.counts()}`);
});

Deno.test("a conversation without an id stays at its server, and leaves one that fails", async () => {
  await using rig = await setup();
  const first = { messages };
  await rig.ask("/chat/completions", first);
  const favourite = rig.counts().indexOf(1);
  const reply = { role: "assistant", content: "Hello" };
  const longer = { messages: [...messages, reply, ...messages] };
  await rig.ask("/chat/completions", longer);
  assert.equal(rig.counts()[favourite], 2);
  rig.breakFavourite(favourite);
  assert.equal(await rig.ask("/chat/completions", longer), 200);
  assert.equal(rig.counts()[favourite], 3);
  const other = rig.counts().findIndex((count, index) =>
    count > 0 && index !== favourite
  );
  assert.equal(await rig.ask("/chat/completions", longer), 200);
  assert.equal(rig.counts()[other], 2, "the same other server");
});

// Promises: answers of messages, responses, completions and embeddings are kept as
// their server has sent them, streamed and whole; only numbers of events are added.
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { DIALECTS, stream } from "../../forward/event_streams.ts";
import { callApi } from "../../support/chat_request.ts";
import type { LimitedGateway, TestKey } from "../../support/gateway/limited.ts";
import {
  chunk,
  jsonResponse,
  lastChunk,
} from "../../support/model_servers/model_answers.ts";
import {
  type Reply,
  startScriptedServer,
} from "../../support/model_servers/scripted_server.ts";
import { getKept, idOf, startKeeping } from "./kept_rig.ts";

/** Our numbers, which are the last lines of events. */
const NUMBERS = /^id: \d+\r?\n/gm;

async function startForwarding(reply: Reply) {
  await using starting = new AsyncDisposableStack();
  const server = starting.use(startScriptedServer({ reply }));
  const backend = {
    type: "openai",
    base_url: server.baseUrl,
    model: "theirs",
    api_key_env: "KEY",
  };
  const talks = [{ ...backend, dialect: "vllm" }];
  const catalog = parseCatalog({
    models: [
      { id: "talk", output_tokens: 1_000, backends: talks },
      { id: "embed", kind: "embedding", backends: [backend] },
    ],
  });
  const gateway = starting.use(await startKeeping({ catalog }));
  const scopes = "chat,embedding,speech";
  const key = await gateway.addKey({ scopes });
  const running = starting.move();
  return {
    server,
    gateway,
    key,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** Posts a body as it is, with an idempotency key. */
function post(
  { gateway, key }: { gateway: LimitedGateway; key: TestKey },
  path: string,
  body: string,
): Promise<Response> {
  return callApi(`${gateway.baseUrl()}/${path}`, key.value, {
    body: JSON.parse(body),
    headers: { "idempotency-key": path },
  });
}

/** A comment alone: its blank line is left out, as some clients take it for an event. */
const COMMENT_END = /^(:[^\r\n]*(?:\r\n|\n))(?:\r\n|\n)/gm;

Deno.test("a forwarded stream is read on by the number of any of its events", async () => {
  for (const { path, body, events } of DIALECTS) {
    const half = Math.floor(events.length / 2);
    const pieces = [events.slice(0, half), events.slice(half)].map(chunk);
    await using t = await startForwarding(() => [
      ...stream(),
      ...pieces,
      lastChunk,
    ]);
    const first = await post(t, path, body);
    const text = await first.text();
    const sent = events.replaceAll(COMMENT_END, "$1");
    assert.equal(text.replaceAll(NUMBERS, ""), sent, path);
    const target: [LimitedGateway, TestKey] = [t.gateway, t.key];
    const id = idOf(first);
    assert.equal(await (await getKept(target, id)).text(), text);
    const end = /^id: 2\r?\n\r?\n/m.exec(text) ?? assert.fail(text);
    const rest = await getKept(target, `${id}?after=2`);
    assert.equal(await rest.text(), text.slice(end.index + end[0].length));
    const again = await post(t, path, body);
    assert.equal(again.headers.get("idempotent-replayed"), "true");
    assert.equal(await again.text(), text);
    await t.server.request(1);
    assert.equal(t.server.requests.length, 1, path);
  }
});

const USAGE = { input_tokens: 1, output_tokens: 1 };
const WHOLE = [
  {
    path: "messages",
    answer: { id: "m", type: "message", content: [], usage: USAGE },
  },
  {
    path: "responses",
    answer: {
      id: "r",
      object: "response",
      status: "completed",
      output: [],
      usage: { ...USAGE, total_tokens: 2 },
    },
  },
  {
    path: "completions",
    answer: {
      id: "c",
      choices: [{ text: "a", index: 0, finish_reason: "stop" }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
    },
  },
];

Deno.test("a whole answer that is forwarded is kept with its headers", async () => {
  for (const { path, answer } of WHOLE) {
    const { body } = DIALECTS.find((each) => each.path === path) ??
      assert.fail(path);
    const { stream: _, ...fields } = JSON.parse(body);
    await using t = await startForwarding(() => jsonResponse(answer));
    const first = await post(t, path, JSON.stringify(fields));
    const text = await first.text();
    const again = await post(t, path, JSON.stringify(fields));
    assert.equal(await again.text(), text, path);
    const type = first.headers.get("content-type");
    assert.equal(again.headers.get("content-type"), type);
  }
});

Deno.test("embeddings are kept; an endpoint that keeps nothing refuses to", async () => {
  const data = [{ object: "embedding", index: 0, embedding: [0.5, 0.25] }];
  const usage = { prompt_tokens: 1, total_tokens: 1 };
  const answer = { object: "list", model: "theirs", data, usage };
  await using t = await startForwarding(() => jsonResponse(answer));
  const body = JSON.stringify({ model: "embed", input: "a" });
  const first = await post(t, "embeddings", body);
  assert.equal(first.status, 200);
  const text = await first.text();
  const again = await post(t, "embeddings", body);
  assert.equal(await again.text(), text);
  const speech = await post(t, "audio/speech", body);
  assert.equal(speech.status, 400);
  assert.equal((await speech.json()).error.code, "keep_unavailable");
});

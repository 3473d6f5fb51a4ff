// Promise: a key of a model server that is refused because of a limit reaches no caller
// of forwarded requests, speech or images while another key of the server is free.
import assert from "node:assert/strict";
import type { JobRequest } from "@gateway/shared/bus/job";
import {
  type ForwardRequest,
  isForwardRequest,
} from "@gateway/shared/forward/request";
import { parseCatalog } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { monotonicNow } from "@gateway/shared/process/clock";
import { ModelServer } from "@gateway/shared/upstream/model_server";
import { BackendPool } from "@gateway/shared/upstream/pool";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import { Forwarder } from "../../services/chat-worker/forward/forwarder.ts";
import { runMedia } from "../../services/media-worker/media.ts";
import { IMAGE, SPEECH } from "../../services/media-worker/server_fixture.ts";
import { UseTable } from "@gateway/shared/server_limits/use_table";
import { Keyrings } from "@gateway/shared/worker/server_limits/keyrings";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { recordContext } from "../support/model_servers/recorded_context.ts";
import { startScriptedServer } from "../support/model_servers/scripted_server.ts";

const KEYS = new Map([["LIMITED", "limited-key"], ["FREE", "free-key"]]);
const REQUESTS = 20;
const SOUND = "HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n" +
  "content-length: 4\r\n\r\nID3!";

/** A forwarded request of an endpoint. */
function forwarded(forward: ForwardRequest["forward"]): ForwardRequest {
  const body = '{"model":"m","input":"Hi","max_tokens":1}';
  const from = body.indexOf('"m"');
  return {
    model: "m",
    stream: false,
    forward,
    query: "",
    headers: {},
    body,
    modelAt: { from, to: from + '"m"'.length },
    promptTokens: 1,
    choices: 1,
    outputTokensMax: 1,
    vectors: null,
  };
}

const USAGE = { input_tokens: 1, output_tokens: 1, prompt_tokens: 1 };
const ROWS: readonly {
  name: string;
  kind: ModelKind;
  request: JobRequest;
  /** Null: a sound. */
  answer: object | null;
}[] = [
  {
    name: "messages",
    kind: "chat",
    request: forwarded("messages"),
    answer: { type: "message", content: [], usage: USAGE },
  },
  {
    name: "embeddings",
    kind: "embedding",
    request: forwarded("embeddings"),
    answer: { data: [], usage: { ...USAGE, total_tokens: 1 } },
  },
  {
    name: "images",
    kind: "image",
    request: IMAGE,
    answer: { created: 1, data: [{ b64_json: "AAAA" }] },
  },
  { name: "speech", kind: "speech", request: SPEECH, answer: null },
];

for (const { name, kind, request, answer } of ROWS) {
  Deno.test(`a limited key of a server reaches no caller of ${name}`, async () => {
    let refusals = 0;
    await using server = startScriptedServer({
      reply({ headers }) {
        if (headers.get("authorization") === "Bearer limited-key") {
          refusals += 1;
          const limited = { status: 429, headers: { "retry-after": "600" } };
          return jsonResponse({ error: { message: "Slow down" } }, limited);
        }
        return answer === null ? [{ send: SOUND }] : jsonResponse(answer);
      },
    });
    const backend = {
      type: "openai",
      base_url: server.baseUrl,
      model: "theirs",
      ...kind === "chat" && { speaks: ["chat", "messages"] },
      api_key_envs: [...KEYS.keys()],
    };
    const models = [{ id: "m", kind, backends: [backend] }];
    const { backends } = parseCatalog({ models }).get("m") ?? assert.fail();
    const table = new UseTable(monotonicNow);
    const keyrings = new Keyrings({ table, random: () => 0, onEvent() {} });
    const pool = new BackendPool<ModelServer>({
      ...keyrings.open("m", backends, {
        keys: KEYS,
        create: (config, credential) =>
          new ModelServer({
            config,
            publicModel: "m",
            now: monotonicNow,
            ...credential,
          }),
      }),
      now: monotonicNow,
      random: Math.random,
      sleep: () => assert.fail("nobody has to wait"),
      onAttempt() {},
      onOddity() {},
    });
    const forwarder = new Forwarder();
    for (let each = 0; each < REQUESTS; each += 1) {
      const tools = { pool, memory: new WorkerMemory().openJob() };
      const context = recordContext();
      await (isForwardRequest(request)
        ? forwarder.run(request, context, tools)
        : runMedia(request, context, tools));
      assert.ok(context.bytes > 0);
    }
    assert.equal(refusals, 1, "it rests after its first refusal");
    pool.close();
  });
}

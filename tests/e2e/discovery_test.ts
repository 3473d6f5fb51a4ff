// Promise: models that servers list can be used under their own names, as soon as a
// worker knows them, by the keys that may, and no longer than they exist.
import assert from "node:assert/strict";
import { keyForm } from "../../services/key-admin/forms_fixture.ts";
import { hiddenField } from "../../services/key-admin/client_fixture.ts";
import { callApi } from "../support/chat_request.ts";
import { matchIn, openConsole } from "../support/gateway/console_client.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import {
  startScriptedServer,
  type WholeRequest,
} from "../support/model_servers/scripted_server.ts";
import { makeTempDir } from "../support/process.ts";
import { until } from "../support/wait_for.ts";

const VECTORS = '{"data":[{"embedding":[1]}],"usage":{"prompt_tokens":3}}';
const NOT_FOUND = '{"error":"there is nothing here"}';
const PATIENT_MS = 30_000;

const completion = (model: string) => ({
  id: "c",
  object: "chat.completion",
  created: 1,
  model,
  choices: [{
    index: 0,
    message: { role: "assistant", content: "Hello" },
    finish_reason: "stop",
  }],
  usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
});

/** A model server whose list tests change. */
interface ListingServer extends AsyncDisposable {
  readonly baseUrl: string;
  /** The models of the requests, but those for the list. */
  modelsOfRequests(): string[];
  /** Lists exactly these models from now on. */
  lists(names: readonly string[]): void;
  /** Answers with this text in place of the list. */
  says(text: string): void;
}

/** A server with these models, until its list is changed. */
function startModelServer(models: string[]): ListingServer {
  /** In place of the list. */
  let nonsense: string | null = null;
  const answer = ({ path, body }: WholeRequest) => {
    if (path === "/v1/models") {
      const data = models.map((id) => ({ id, object: "model" }));
      return jsonResponse(nonsense ?? { object: "list", data });
    }
    const { model } = JSON.parse(body || "{}");
    if (!models.includes(model)) {
      return jsonResponse(NOT_FOUND, { status: 404 });
    }
    return jsonResponse(
      path === "/v1/embeddings" ? VECTORS : completion(model),
    );
  };
  const server = startScriptedServer({ reply: answer });
  return {
    baseUrl: server.baseUrl,
    modelsOfRequests: () =>
      server.requests.filter(({ body }) => body !== "")
        .map(({ body }) => JSON.parse(body).model),
    lists: (names) => void models.splice(0, models.length, ...names),
    says(text) {
      nonsense = text;
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** The ids of `GET /v1/models`. */
async function idsOf(gateway: LaunchedGateway, key: string, edge = 0) {
  const answer = await callApi(`${gateway.baseUrl(edge)}/models`, key);
  const { data } = await answer.json();
  return data.map(({ id }: { id: string }) => id);
}

const messages = [{ role: "user", content: "Hi" }];

async function statusOf(gateway: LaunchedGateway, key: string, model: string) {
  const url = `${gateway.baseUrl()}/chat/completions`;
  const answer = await callApi(url, key, { body: { model, messages } });
  const { error, ...rest } = await answer.json();
  if (answer.status === 200) assert.equal(rest.model, model);
  return `${answer.status} ${error?.code ?? ""}`.trim();
}

Deno.test("UPSTREAM_BASE_URL alone offers every model of its server, and ours as the first", async (t) => {
  const listed = ["bge-m3", "llama3.2:latest", "org/qwen3:8b"];
  await using server = startModelServer([...listed]);
  const env = { UPSTREAM_BASE_URL: server.baseUrl };
  await using gateway = await startGateway("launched", {
    edges: 2,
    workers: 2,
    env,
  });

  await t.step(
    "to clients",
    () => offersToClients(gateway, server, listed),
  );

  await t.step(
    "in the console, for keys and to try",
    () => offersInConsole(gateway),
  );
});

async function offersToClients(
  gateway: LaunchedGateway,
  server: ListingServer,
  listed: readonly string[],
): Promise<void> {
  const all = ["neutral-3.7-plus", ...listed];
  const { api_key: key } = gateway.state;
  // At the second edge, too.
  for (const edge of [0, 1]) {
    await until(
      async () => `${await idsOf(gateway, key, edge)}` === `${all}`,
      PATIENT_MS,
    );
  }
  assert.equal(await statusOf(gateway, key, "org/qwen3:8b"), "200");
  assert.equal(await statusOf(gateway, key, "neutral-3.7-plus"), "200");
  assert.deepEqual(server.modelsOfRequests().slice(-2), [
    "org/qwen3:8b",
    "llama3.2:latest",
  ]);
  const few = await gateway.createKey(
    "--models=llama3.2:latest,bge-m3",
    "--scopes=chat,models,embedding",
  );
  assert.deepEqual(await idsOf(gateway, few.key), [
    "bge-m3",
    "llama3.2:latest",
  ]);
  assert.equal(await statusOf(gateway, few.key, "llama3.2:latest"), "200");
  assert.equal(
    await statusOf(gateway, few.key, "org/qwen3:8b"),
    "403 forbidden",
  );
  assert.equal(await statusOf(gateway, key, "gpt-4o"), "404 model_not_found");
  const own = await callApi(`${gateway.baseUrl()}/embeddings`, few.key, {
    body: { model: "bge-m3", input: "Hi" },
  });
  assert.equal(await own.text(), VECTORS);
}

async function offersInConsole(gateway: LaunchedGateway): Promise<void> {
  const owner = await openConsole(gateway);
  const form = await until(async () => {
    const { text } = await owner.get("/keys/new");
    return text.includes('value="org/qwen3:8b"') && text;
  }, PATIENT_MS);
  assert.match(form, /<legend>Embedding<.*value="bge-m3"/s);
  const answer = await owner.post(
    "/keys/new",
    keyForm("Listed", {
      nonce: hiddenField(form, "nonce"),
      which_models: "these",
      models: ["org/qwen3:8b"],
    }),
  );
  assert.equal(answer.status, 201, answer.text);
  const key = matchIn(answer.text, /(sk-Cg[0-9A-Za-z]{46})/);
  await until(
    async () => await statusOf(gateway, key, "org/qwen3:8b") === "200",
    PATIENT_MS,
  );
  assert.equal(
    await statusOf(gateway, key, "neutral-3.7-plus"),
    "403 forbidden",
  );
  const { text } = await owner.get("/try?kind=chat&model=org/qwen3:8b");
  assert.match(text, /<option value="org\/qwen3:8b" selected/);
}

/** A server of the models file that is asked every second. */
const server = (name: string, base_url: string, more: object = {}) => (
  {
    type: "openai",
    name,
    base_url,
    discover: { every_seconds: 1 },
    ...more,
  }
);

/** Begins 24 conversations with a model. */
async function askMany(gateway: LaunchedGateway, key: string) {
  const url = `${gateway.baseUrl()}/chat/completions`;
  for (let index = 0; index < 24; index++) {
    const content = `Question ${index}`;
    const answer = await callApi(url, key, {
      body: { model: "both", messages: [{ role: "user", content }] },
    });
    assert.equal(answer.status, 200);
    await answer.body?.cancel();
  }
}

Deno.test("lists of several servers are followed, also when one fails or has 10,000 models", async () => {
  await using one = startModelServer(["both", "old"]);
  await using two = startModelServer(["both"]);
  await using many = startModelServer(
    Array.from({ length: 10_000 }, (_, index) => `model-${index}`),
  );
  await using broken = startModelServer([]);
  broken.says("<html>It works!</html>");
  await using directory = await makeTempDir();
  const MODELS_FILE = `${directory.path}/models.json`;
  const servers = [
    server("one", one.baseUrl),
    server("two", two.baseUrl),
    server("many", many.baseUrl, {
      discover: { prefix: "many/", every_seconds: 3_600 },
      kinds: { "model-*": "none", "model-7": "chat", "model-99*": "chat" },
    }),
    server("broken", broken.baseUrl),
    server("gone", "http://127.0.0.1:9/v1"),
  ];
  await Deno.writeTextFile(MODELS_FILE, JSON.stringify({ servers }));
  await using gateway = await startGateway("launched", {
    env: { MODELS_FILE },
  });
  const { api_key: key } = gateway.state;
  const lists = (id: string) => async () =>
    (await idsOf(gateway, key)).includes(id);
  await until(lists("old"), PATIENT_MS);
  const ids = await idsOf(gateway, key);
  assert.equal(
    ids.filter((id: string) => /^many\/model-(7|99\d*)$/.test(id)).length,
    112,
  );
  assert.equal(ids.length, 2 + 112);
  assert.equal(await statusOf(gateway, key, "many/model-9999"), "200");
  assert.deepEqual(many.modelsOfRequests(), ["model-9999"]);
  await askMany(gateway, key);
  assert.ok(
    one.modelsOfRequests().length >= 3 && two.modelsOfRequests().length >= 3,
  );
  one.lists(["both", "new:1"]);
  await until(lists("new:1"), PATIENT_MS);
  await until(async () => !await lists("old")(), PATIENT_MS);
  assert.equal(await statusOf(gateway, key, "new:1"), "200");
  // Not "busy": trying again would not help.
  assert.equal(await statusOf(gateway, key, "old"), "404 model_not_found");
  assert.equal(await statusOf(gateway, key, "never"), "404 model_not_found");
  // A list that turns into nonsense takes nothing away.
  one.says('{"data":"none"}');
  two.lists(["both", "newer"]);
  await until(lists("newer"), PATIENT_MS);
  assert.equal(await statusOf(gateway, key, "new:1"), "200");
});

// Promise: what `up` prints is true of the model servers, and can be pasted.
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { startScriptedServer } from "../../tests/support/model_servers/scripted_server.ts";
import { freePort } from "../../tests/support/servers/local_server.ts";
import {
  head,
  jsonResponse,
} from "../../tests/support/model_servers/model_answers.ts";
import { ROOT } from "./options.ts";
import { readSettings } from "./plan.ts";
import { describeModels, describeSummary } from "./welcome.ts";

const MOVED = head(
  "301 Moved\r\nlocation: https://u:p@models.example/v1/models?key=k\r\ncontent-length: 0",
);

/** A server of a model, and the line about it. */
interface Row {
  url: string;
  keyName?: string;
  says: string;
  isAnswering: boolean;
}

function rowsAt(url: string, dead: string): Row[] {
  const missing = "answers 404 to GET /models, does the URL lack /v1?";
  return [
    { url, keyName: "GOOD", says: "answers", isAnswering: true },
    {
      url: `${url}/moved`,
      says:
        "redirects to https://models.example/v1/models, which is not followed: check the URL",
      isAnswering: false,
    },
    {
      url,
      keyName: "BAD",
      says: "401, check the key in BAD",
      isAnswering: false,
    },
    {
      url,
      says:
        "401, it wants a key: set UPSTREAM_API_KEY, or api_key_env in the models file",
      isAnswering: false,
    },
    { url: `${url}/none`, says: missing, isAnswering: true },
    {
      url: `${url}/busy`,
      says: "answers 503 to GET /models",
      isAnswering: false,
    },
    { url: `${url}/stall`, says: "no answer in 2 s", isAnswering: false },
    {
      url: `${url}/garbage`,
      says: "answers, but not in HTTP",
      isAnswering: false,
    },
    {
      url: dead,
      says: "not reachable (connection refused)",
      isAnswering: false,
    },
  ];
}

Deno.test("describeModels() says of each model what answers, or why nothing does, within two seconds", async () => {
  await using server = startScriptedServer({
    reply: ({ path, headers }) => {
      if (path === "/v1/stall/models") return [{ stall: true }];
      if (path === "/v1/garbage/models") return [{ send: "SSH-2.0-x\r\n\r\n" }];
      if (path === "/v1/moved/models") return [MOVED];
      if (path === "/v1/busy/models") return jsonResponse({}, { status: 503 });
      if (path !== "/v1/models") return jsonResponse({}, { status: 404 });
      const isGood = headers.get("authorization") === "Bearer good";
      return jsonResponse({ data: [] }, { status: isGood ? 200 : 401 });
    },
  });
  const url = server.baseUrl;
  const dead = `http://127.0.0.1:${freePort()}/v1`;
  const rows = rowsAt(url, dead);
  const models = rows.map(({ url: base_url, keyName: api_key_env }, nth) => ({
    id: `model-${nth}`,
    backends: [{ type: "openai", base_url, model: "m", api_key_env }],
  }));
  const startedAtMs = performance.now();
  const found = await describeModels({
    catalog: parseCatalog({ models }),
    hasSimulator: false,
    keyOf: (name) => name.toLowerCase(),
    proxies: {
      httpsProxy: undefined,
      httpProxy: undefined,
      noProxy: undefined,
    },
  });
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs < 3_500, `${tookMs} ms`);
  assert.deepEqual(
    found.map(({ servers, isAnswering }) => ({ servers, isAnswering })),
    rows.map(({ url, says, isAnswering }) => ({
      servers: `${url} : ${says}`,
      isAnswering,
    })),
  );
});

Deno.test("describeModels() names what servers list, and says why one has no list", async () => {
  const names = ["embedder", "a", "b", "c", "d", "e f", "hidden", "g"];
  await using server = startScriptedServer({
    reply: ({ path }) =>
      path === "/v1/models"
        ? jsonResponse({ data: names.map((id) => ({ id })) })
        : jsonResponse({}, { status: 404 }),
  });
  const url = server.baseUrl;
  const at = (name: string, base_url: string) => ({
    type: "openai",
    name,
    base_url,
    discover: { prefix: "x/" },
    kinds: { hidden: "none", embedder: "embedding" },
  });
  const dead = `http://127.0.0.1:${freePort()}/v1`;
  const found = await describeModels({
    catalog: parseCatalog({
      servers: [at("one", url), at("two", `${url}/none`), at("three", dead)],
    }),
    hasSimulator: false,
    keyOf: () => undefined,
    proxies: {
      httpsProxy: undefined,
      httpProxy: undefined,
      noProxy: undefined,
    },
  });
  const text = describeSummary(STATE, {
    firstKey: { key: "sk-CgTest" },
    models: found,
    ...RUN,
  });
  const missing = "answers 404 to GET /models, does the URL lack /v1?";
  for (
    const line of [
      `6 models of one -> ${url} : answers with x/embedder, x/a, x/b, x/c, x/d …`,
      `the models of two -> ${url}/none : ${missing}`,
      `the models of three -> ${dead} : not reachable (connection refused)`,
    ]
  ) assert.ok(text.includes(`${line}\n`), text);
  // The first chat model of the list.
  assert.match(text, /"model":"x\/a"/);
});

Deno.test("readSettings() finds the keys of model servers where workers do", async () => {
  const file = await Deno.makeTempFile();
  await Deno.writeTextFile(file, "from-file\n");
  const UPSTREAM_BASE_URL = "http://127.0.0.1:9/v1";
  const env = { UPSTREAM_BASE_URL, UPSTREAM_API_KEY_FILE: file, OTHER: " x " };
  const { keyOf, catalog } = readSettings(env, "/");
  await Deno.remove(file);
  const names = [...catalog.values()]
    .flatMap(({ backends }) => backends.map((each) => each.api_key_env));
  assert.deepEqual(names, ["UPSTREAM_API_KEY"]);
  assert.equal(keyOf("UPSTREAM_API_KEY"), "from-file");
  assert.equal(keyOf("OTHER"), undefined, "the list does not name it");
});

const STATE = {
  edge_urls: ["http://127.0.0.1:8080", "http://127.0.0.1:40001"],
  console_url: "http://127.0.0.1:8081",
  setup_url: "http://x/link/y",
};
const RUN = { runDir: "/repo/.run", seconds: 1.23 };
const answering = { servers: "http://vllm/v1", isAnswering: true };
const SPEAKS = { id: "speaks", kind: "speech", ...answering } as const;

Deno.test("describeSummary() prints a curl command that a shell reads correctly, and none without a chat model", async () => {
  const down = { servers: "http://x: not reachable", isAnswering: false };
  const text = describeSummary(STATE, {
    firstKey: { key: "sk-CgTest" },
    models: [
      SPEAKS,
      { id: "down", kind: "chat", ...down },
      { id: "it's-a-model", kind: "chat", ...answering },
    ],
    ...RUN,
  });
  assert.match(text, /^Ready in 1\.2 s\n/);
  assert.match(text, /Models +speaks -> http:\/\/vllm\/v1\n/);
  assert.match(text, /\n +http:\/\/127\.0\.0\.1:40001\/v1\n/);
  const line = text.split("\n").find((line) => line.trim().startsWith("curl"));
  const { stdout } = await new Deno.Command("sh", {
    args: ["-c", `curl() { printf '%s\\n' "$@"; }\n${line}`],
  }).output();
  const body = {
    model: "it's-a-model",
    stream: true,
    messages: [{ role: "user", content: "Say hello in five words." }],
  };
  assert.deepEqual(new TextDecoder().decode(stdout).trim().split("\n"), [
    "-N",
    "http://127.0.0.1:8080/v1/chat/completions",
    "-H",
    "Authorization: Bearer sk-CgTest",
    "-H",
    "Content-Type: application/json",
    "-d",
    JSON.stringify(body),
  ]);
  const media = describeSummary(STATE, {
    firstKey: { key: "sk-CgTest" },
    models: [SPEAKS],
    ...RUN,
  });
  assert.match(media, /Models +speaks -> /);
  assert.doesNotMatch(media, /curl|Try it|owners set-up/);
  const here = { ...RUN, runDir: `${ROOT}/.run` };
  const empty = { firstKey: {}, models: [], ...here };
  assert.match(describeSummary(STATE, empty), /owners set-up/);
});

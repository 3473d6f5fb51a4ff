// Promise: `gateway check` names every mistake before it counts, and says of each model
// server what it answers to a tiny request.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import {
  head,
  jsonResponse,
} from "../../tests/support/model_servers/model_answers.ts";
import { startScriptedServer } from "../../tests/support/model_servers/scripted_server.ts";
import { makeTempDir } from "../../tests/support/process.ts";
import { freePort } from "../../tests/support/servers/local_server.ts";
import { check, type CheckOptions } from "./check.ts";

const MAIN = fileURLToPath(new URL("main.ts", import.meta.url));

/** Checks a list of models, and returns the exit code and what was said. */
async function checked(
  models: unknown,
  { env = {}, ...options }: Partial<CheckOptions> = {},
) {
  const text = typeof models === "string" ? models : JSON.stringify(models);
  const lines: string[] = [];
  const code = await check({
    env: { MODELS_FILE: "models.json", ...env },
    readFile: () => text,
    asks: false,
    hasKeys: true,
    say: (line) => lines.push(line),
    ...options,
  });
  return { code, lines, text: lines.join("\n") };
}

const backend = (base_url: string, more: object = {}) => (
  { type: "openai", base_url, model: "theirs", ...more }
);
const GOOD = {
  models: [{ id: "good", backends: [backend("http://127.0.0.1:9/v1")] }],
};

Deno.test("a list without mistakes passes, also without a key that only workers have", async () => {
  const { code, text } = await checked(GOOD);
  assert.equal(code, 0);
  assert.equal(
    text,
    "The list of models and the environment are right: 1 model",
  );
  const hosted = backend("https://api.test/v1", { api_key_env: "HOSTED_KEY" });
  const list = { models: [{ id: "hosted", backends: [hosted] }] };
  assert.equal((await checked(list, { hasKeys: false })).code, 0);
  assert.equal((await checked(list, { env: { HOSTED_KEY: "k" } })).code, 0);
  const missing = await checked(list);
  assert.equal(missing.code, 78);
  assert.match(missing.text, /HOSTED_KEY is missing: the models file names it/);
});

Deno.test("models without a price are named where others have one", async () => {
  const backends = [backend("http://127.0.0.1:9/v1")];
  const prices = { input: "0.25", output: "1" };
  const models = [{ id: "priced", prices, backends }, { id: "free", backends }];
  const { code, lines } = await checked({ models }, {
    env: { CURRENCY: "EUR" },
  });
  assert.equal(code, 0);
  assert.match(lines[1] ?? "", /^ {2}prices in EUR: table [0-9a-f]{12}$/);
  assert.equal(lines[2], "  without a price: free");
  const wrong = [{ id: "a", prices: { input: "-1", output: "1" }, backends }];
  const refused = await checked({ models: wrong }, {
    env: { CURRENCY: "euro" },
  });
  assert.equal(refused.code, 78);
  assert.match(
    refused.text,
    /CURRENCY="euro"\s+expected three capital letters/,
  );
  const negative = await checked({ models: wrong });
  assert.match(negative.text, /models\[0\]\.prices\.input: .*not negative/);
});

Deno.test("every mistake of the file and of the environment is named with its place", async () => {
  const wrong = {
    models: [
      { id: "a", visoin: true, backends: [backend("http://127.0.0.1:9/v1")] },
      { id: "b", backends: [backend("ftp://x")] },
    ],
  };
  const env = { DRAIN_SECONDS: "soon", NATS_URL: "http://x" };
  const { code, text } = await checked(wrong, { env });
  assert.equal(code, 78);
  for (
    const says of [
      /2 mistakes in the environment/,
      /DRAIN_SECONDS="soon"/,
      /NATS_URL/,
      /2 mistakes in the models file/,
      /models\[0\].*unknown member 'visoin'/,
      /models\[1\]\.backends\[0\]\.base_url: /,
    ]
  ) assert.match(text, says);
});

Deno.test("every mistake of a probe is named with its place", async () => {
  const cases: [probe: unknown, says: string][] = [
    [{ every_seconds: 0 }, ".every_seconds: expected a value >= 5"],
    [{ every_seconds: -30 }, ".every_seconds: expected a value >= 5"],
    [{ every_seconds: 4 }, ".every_seconds: expected a value >= 5"],
    [{ every_seconds: 3_601 }, ".every_seconds: expected a value <= 3600"],
    [{ every_seconds: 7.5 }, ".every_seconds: expected an integer, got a dec"],
    [{ every_seconds: "30" }, ".every_seconds: expected a number, got a str"],
    [{}, ".every_seconds: missing"],
    [{ every_second: 30 }, ": unknown member 'every_second', did you mean"],
    [true, ": expected an object, got a boolean"],
  ];
  const at = "http://127.0.0.1:9/v1";
  const models = cases.map(([probe], n) => (
    { id: `m${n}`, backends: [backend(at, { probe })] }
  ));
  const server = { type: "openai", name: "s", base_url: at };
  const servers = [{ ...server, probe: { every_seconds: 30 } }];
  const { code, text } = await checked({ models, servers });
  assert.equal(code, 78);
  for (const [n, [, says]] of cases.entries()) {
    const mistake = `models[${n}].backends[0].probe${says}`;
    assert.ok(text.includes(mistake), `${mistake} in:\n${text}`);
  }
  assert.match(text, /servers\[0\]: unknown member 'probe'/);
  for (const every_seconds of [5, 3_600]) {
    const backends = [backend(at, { probe: { every_seconds } })];
    assert.equal((await checked({ models: [{ id: "m", backends }] })).code, 0);
  }
});

Deno.test("a file that was cut in the middle of a write is a mistake with its place", async () => {
  const whole = JSON.stringify(GOOD, null, 2);
  for (const length of [1, 20, whole.length / 2, whole.length - 2]) {
    const { code, text } = await checked(whole.slice(0, length));
    assert.equal(code, 78, text);
    assert.match(text, /the models file:\n.*not valid JSON: .*\d+/, text);
  }
  const { code, text } = await checked("", { env: { MODELS_FILE: "" } });
  assert.equal(code, 78);
  assert.match(text, /no model server: set MODELS_FILE, UPSTREAM_BASE_URL/);
});

/** A server that refuses keys but `good`, and has paths that misbehave. */
const startServer = () =>
  startScriptedServer({
    reply: ({ path, headers, body }) => {
      if (path.startsWith("/hang/")) return [{ stall: true }];
      if (path.startsWith("/garbage/")) return [{ send: "SSH-2.0-x\r\n\r\n" }];
      if (path.startsWith("/moved/")) {
        return [
          head("301 Moved\r\nlocation: https://x.test/\r\ncontent-length: 0"),
        ];
      }
      if (headers.get("authorization") !== "Bearer good") {
        return jsonResponse({ error: { message: "no" } }, { status: 401 });
      }
      if (path === "/v1/models") return jsonResponse({ data: [{ id: "one" }] });
      const { model } = JSON.parse(body);
      if (model === "unknown") {
        const message = "The model 'unknown' does not exist";
        return jsonResponse({ error: { message } }, { status: 404 });
      }
      return jsonResponse({});
    },
  });

/** A model with one backend, and how the line about it ends. */
interface Row {
  id: string;
  backend: object;
  /** What its line says. */
  expected: RegExp;
  /** Further members of the model. */
  more?: object;
}

const ANSWERS = /: answers in \d+ ms$/;

const KEY = { api_key_env: "GOOD_KEY" };

/** Backends that answer. */
function goodRows(url: string): Row[] {
  return [
    {
      id: "fine",
      backend: backend(url, KEY),
      expected: ANSWERS,
    },
    {
      id: "same",
      backend: backend(url, KEY),
      expected: ANSWERS,
    },
    {
      id: "vectors",
      backend: backend(url, KEY),
      expected: ANSWERS,
      more: { kind: "embedding" },
    },
    {
      id: "order",
      backend: backend(url, KEY),
      expected: ANSWERS,
      more: { kind: "rerank" },
    },
    {
      id: "agent",
      backend: backend(url, { ...KEY, speaks: ["messages"], model: "m" }),
      expected: ANSWERS,
    },
    {
      id: "painter",
      backend: backend(url, KEY),
      expected: /: answers to GET \/models; a request would cost/,
      more: { kind: "image" },
    },
  ];
}

/** Backends with a fault each. */
function faultyRows(url: string): Row[] {
  const at = (path: string) => url.replace("/v1", path);
  const quick = { deadlines: { first_token_ms: 200 } };
  const dead = `http://127.0.0.1:${freePort()}/v1`;
  return [
    {
      id: "unknown",
      backend: backend(url, { ...KEY, model: "unknown" }),
      expected:
        /: answers 404 to POST \/chat\/completions: .*does not have this model: .*'unknown' does not exist$/,
    },
    {
      id: "refused",
      backend: backend(url, { api_key_env: "BAD_KEY" }),
      expected: /: 401, check the key in BAD_KEY$/,
    },
    {
      id: "keyless",
      backend: backend(url),
      expected: /: 401, it wants a key: set UPSTREAM_API_KEY, or api_key_env/,
    },
    {
      id: "moved",
      backend: backend(at("/moved"), KEY),
      expected: /: redirects to https:\/\/x.test\/, which is not followed/,
    },
    {
      id: "hangs",
      backend: backend(at("/hang"), { ...KEY, ...quick }),
      expected: /: no answer in 0.2 s$/,
    },
    {
      id: "garbage",
      backend: backend(at("/garbage"), KEY),
      expected: /: answers, but not in HTTP$/,
    },
    {
      id: "dead",
      backend: backend(dead, KEY),
      expected: /: not reachable \(connection refused\)$/,
    },
  ];
}

Deno.test("of a pool, each key is tried by itself", async () => {
  await using server = startServer();
  const pool = { api_key_envs: ["GOOD_KEY", "BAD_KEY"], model: "m" };
  const backends = [backend(server.baseUrl, pool)];
  const env = { GOOD_KEY: "good", BAD_KEY: "bad" };
  const { code, lines } = await checked({ models: [{ id: "m", backends }] }, {
    env,
    asks: true,
  });
  assert.equal(code, 69);
  const about = (name: string) =>
    lines.find((line) => line.startsWith(`  m (${name}) -> `)) ?? "";
  assert.match(about("GOOD_KEY"), /: answers in \d+ ms$/);
  assert.match(about("BAD_KEY"), /: 401, check the key in BAD_KEY$/);
});

Deno.test("each server is sent one tiny request, and what came back is said", async () => {
  await using server = startServer();
  const rows = [...goodRows(server.baseUrl), ...faultyRows(server.baseUrl)];
  const models = rows.map(({ id, backend, more }) => (
    { id, backends: [backend], ...more }
  ));
  const env = { GOOD_KEY: "good", BAD_KEY: "bad" };
  const { code, lines } = await checked({ models }, { env, asks: true });
  assert.equal(code, 69);
  for (const { id, expected } of rows) {
    const line = lines.find((line) => line.startsWith(`  ${id} -> `));
    // The same model of the same server is asked once.
    if (id === "same") assert.equal(line, undefined);
    else assert.match(line ?? assert.fail(id), expected);
  }
  const requests = server.requests.filter(({ path }) => path.startsWith("/v1/"))
    .map(({ path, body }) => `${path} ${body}`);
  const message = '"messages":[{"role":"user","content":"Hi"}]';
  for (
    const request of [
      `/v1/chat/completions {"model":"theirs",${message},"max_tokens":1}`,
      `/v1/messages {"model":"m",${message},"max_tokens":1}`,
      '/v1/embeddings {"model":"theirs","input":"Hi"}',
      '/v1/rerank {"model":"theirs","query":"Hi","documents":["Hi"]}',
    ]
  ) assert.ok(requests.includes(request), requests.join("\n"));
});

Deno.test("a server that lists models is asked for them, and the first chat model", async () => {
  await using server = startServer();
  const env = {
    MODELS_FILE: "",
    UPSTREAM_BASE_URL: server.baseUrl,
    UPSTREAM_API_KEY: "good",
  };
  const { code, lines } = await checked("", { env, asks: true });
  assert.equal(code, 0, lines.join("\n"));
  const url = server.baseUrl;
  assert.deepEqual(lines.map((line) => line.replace(/\d+ ms/, "n ms")), [
    "The list of models and the environment are right: 1 model, and those that 1 server will list",
    `  upstream -> ${url} : answers, lists 1 model`,
    `  neutral-3.7-plus -> ${url} : answers in n ms`,
  ]);
  const posts = server.requests.filter(({ body }) => body !== "");
  assert.deepEqual(posts.map(({ body }) => JSON.parse(body).model), ["one"]);
});

Deno.test("the command reads a file from where it is called, and refuses what it does not know", async () => {
  await using directory = await makeTempDir();
  const cwd = directory.path;
  await Deno.writeTextFile(`${cwd}/good.json`, JSON.stringify(GOOD));
  await Deno.writeTextFile(`${cwd}/bad.json`, '{"models": [');
  const run = async (...args: string[]) => {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--no-check", "-q", "-NER", MAIN, ...args],
      cwd,
      env: { INIT_CWD: cwd },
    }).output();
    const decoder = new TextDecoder();
    return `${code} ${decoder.decode(stdout)}${decoder.decode(stderr)}`;
  };
  assert.match(
    await run("--models", "good.json"),
    /^0 .* are right: 1 model\n$/,
  );
  assert.match(
    await run("--models=bad.json"),
    /^78 1 mistake in the models file/,
  );
  assert.match(
    await run("--models=none.json"),
    /^78 .*MODELS_FILE.*none\.json/s,
  );
  assert.match(await run("--help"), /^0 Usage: gateway check/);
  assert.match(await run("--frob"), /^2 Unknown argument: --frob/);
});

/** The list of models from variables and files. */
import assert from "node:assert/strict";
import { ConfigError, type Env, parseEnv } from "../process/env.ts";
import { type BackendConfig, DEFAULT_MODEL_ID } from "./catalog.ts";
import { CATALOG_VARIABLES, catalogOf } from "./catalog_variables.ts";
import { DIALECTS } from "./dialects.ts";

const noFiles = (path: string): string => assert.fail(`no file ${path}`);
const BASE_URL = "http://ollama:11434/v1";
const SIMULATOR = { MODEL_SIMULATOR_URL: "http://simulator:8090/v1/" };

function modelsOf(env: Env, readFile = noFiles, hasUpstreamKey = false) {
  const settings = parseEnv(CATALOG_VARIABLES, env, readFile);
  return [...catalogOf(settings, { hasUpstreamKey }).values()];
}

function upstream(
  env: Env,
  { hasKey = false } = {},
): BackendConfig | undefined {
  const variables = { UPSTREAM_BASE_URL: BASE_URL, ...env };
  const [model, ...others] = modelsOf(variables, noFiles, hasKey);
  assert.equal(model?.id, DEFAULT_MODEL_ID);
  assert.deepEqual(others, []);
  return model.backends[0];
}

Deno.test("catalogOf() offers a model server under the gateway's name", () => {
  const plain = upstream({});
  assert.equal(plain?.model, DEFAULT_MODEL_ID);
  assert.equal(plain.base_url, BASE_URL);
  assert.equal(plain.api_key_env, undefined);
  assert.equal(plain.deadlines.first_token_ms, 300_000);
  const message = upstream({
    UPSTREAM_BASE_URL: `${BASE_URL}/`,
    UPSTREAM_MODEL: "qwen3:8b",
    UPSTREAM_DIALECT: "ollama",
    UPSTREAM_FIRST_TOKEN_SECONDS: "30",
    UPSTREAM_BETWEEN_TOKENS_SECONDS: "7",
    UPSTREAM_TOTAL_SECONDS: "900",
  }, { hasKey: true });
  assert.equal(message?.model, "qwen3:8b");
  assert.equal(message.base_url, BASE_URL);
  assert.equal(message.api_key_env, "UPSTREAM_API_KEY");
  assert.deepEqual(message.dialect, DIALECTS.ollama);
  assert.equal(message.deadlines.first_token_ms, 30_000);
  assert.equal(message.deadlines.between_tokens_ms, 7_000);
  assert.equal(message.deadlines.total_ms, 900_000);
});

Deno.test("catalogOf() asks a model server for its models, unless it is told not to", () => {
  const serversOf = (env: Env) =>
    catalogOf(
      parseEnv(
        CATALOG_VARIABLES,
        { UPSTREAM_BASE_URL: BASE_URL, ...env },
        noFiles,
      ),
      { hasUpstreamKey: false },
    ).servers;
  const [server, ...others] = serversOf({ UPSTREAM_DIALECT: "ollama" });
  assert.deepEqual(others, []);
  assert.equal(server?.standIn, DEFAULT_MODEL_ID);
  assert.equal(server.template.base_url, BASE_URL);
  assert.deepEqual(server.template.dialect, DIALECTS.ollama);
  // The name at the server is known.
  assert.equal(serversOf({ UPSTREAM_MODEL: "qwen3:8b" })[0]?.standIn, null);
  assert.deepEqual(serversOf({ UPSTREAM_DISCOVER: "false" }), []);
});

Deno.test("catalogOf() takes the simulator when no model server is given", () => {
  const [model, ...others] = modelsOf(SIMULATOR);
  assert.equal(model?.owned_by, "simulator");
  assert.ok(model.accepts.has("image"));
  assert.equal(model.context_tokens, 200_000);
  assert.equal(model.output_tokens, 32_768);
  assert.deepEqual(
    others.map(({ id, kind }) => [id, kind]),
    [
      ["simulated-speech-1", "speech"],
      ["simulated-image-1", "image"],
      ["simulated-transcription-1", "transcription"],
      ["simulated-video-1", "video"],
      ["simulated-embedding-1", "embedding"],
      ["simulated-rerank-1", "rerank"],
    ],
  );
  for (const { id, backends: [backend] } of [model, ...others]) {
    assert.equal(backend?.base_url, "http://simulator:8090/v1");
    assert.equal(backend.model, id);
  }
});

const WRONG: [env: Env, message: RegExp][] = [
  [{}, /no model server: set MODELS_FILE/],
  [{ UPSTREAM_BASE_URL: "a" }, /UPSTREAM_BASE_URL="a"/],
  [{ UPSTREAM_BASE_URL: "http://a/v1?x=1" }, /without user, password, query/],
  [{ MODEL_SIMULATOR_URL: "simulator" }, /MODEL_SIMULATOR_URL="simulator"/],
  [{ MODELS_FILE: "/none" }, /MODELS_FILE="\/none"\s+cannot read it/],
  [{ MODELS_FILE: "/broken" }, /in the models file:\s+- it is not valid JSON/],
  [{ MODELS_FILE: "/repeated" }, /in the models file:\s+- line 2: "models" is/],
  [{ UPSTREAM_DIALECT: "vlm" }, /anthropic, did you mean 'vllm'\?/],
  [{ UPSTREAM_FIRST_TOKEN_SECONDS: "0" }, /from 1 to 600/],
  [{ UPSTREAM_FIRST_TOKEN_SECONDS: "601" }, /from 1 to 600/],
  [{ UPSTREAM_FIRST_TOKEN_SECONDS: "1.5" }, /from 1 to 600/],
];

for (const [env, message] of WRONG) {
  Deno.test(`catalogOf() refuses ${JSON.stringify(env)}`, () => {
    const files: Record<string, string> = {
      "/broken": "{",
      "/repeated": '{"models": [],\n"models": []}',
    };
    const readFile = (path: string) =>
      files[path] ?? assert.fail("no such file");
    assert.throws(() => modelsOf(env, readFile), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, message);
      return true;
    });
  });
}

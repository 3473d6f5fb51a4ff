import assert from "node:assert/strict";
import type { WorkerFamily } from "../bus/subjects.ts";
import { ConfigError, type Env, parseEnv } from "../process/env.ts";
import { WORKER_VARIABLES, workerConfig } from "./config.ts";

const backendOf = (name: string) => ({
  type: "openai",
  base_url: "http://a/v1",
  model: "m",
  api_key_env: `${name}_KEY`,
});
const MODELS_FILE = JSON.stringify({
  models: ["chat", "image", "speech", "transcription", "video"].map(
    (kind) => ({ id: kind, kind, backends: [backendOf(kind)] }),
  ),
});

function configOf(family: WorkerFamily, env: Env) {
  const read = { MODELS_FILE: "models.json" };
  const settings = parseEnv(WORKER_VARIABLES, read, () => MODELS_FILE);
  return workerConfig(settings, { env, family, slots: 1 });
}

Deno.test("workerConfig() has the models of the worker's family, and only their keys", () => {
  const chat = configOf("chat", { chat_KEY: " a ", image_KEY: "b" });
  assert.deepEqual([...chat.catalog.keys()], ["chat"]);
  assert.equal(chat.backendKeys.get("chat_KEY"), "a");
  assert.equal(chat.backendKeys.has("image_KEY"), false);
  const kinds = ["image", "speech", "transcription", "video"];
  const env = Object.fromEntries(kinds.map((kind) => [`${kind}_KEY`, kind]));
  assert.deepEqual([...configOf("media", env).catalog.keys()], kinds);
});

Deno.test("workerConfig() refuses a key that has no value", () => {
  for (const value of [undefined, "", " "]) {
    assert.throws(
      () => configOf("chat", { chat_KEY: value }),
      (error) =>
        error instanceof ConfigError &&
        /chat_KEY is missing/.test(error.message),
    );
  }
});

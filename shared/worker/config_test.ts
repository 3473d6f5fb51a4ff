/** The configuration of workers. */
import assert from "node:assert/strict";
import type { WorkerFamily } from "../bus/subjects.ts";
import { ConfigError, type Env, parseEnv } from "../process/env.ts";
import type { Reading } from "../reload/reading.ts";
import { WORKER_VARIABLES, workerConfig } from "./config.ts";
import type { WorkerList } from "./models/worker_models.ts";

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

/** The list of a worker in this environment, with these files besides the list. */
function listOf(
  family: WorkerFamily,
  env: Env,
  files: { [path: string]: string } = {},
) {
  const all = { ...env, MODELS_FILE: "models.json" };
  const readFile = (path: string) => {
    if (path === "models.json") return MODELS_FILE;
    return files[path] ?? assert.fail(`there is no ${path}`);
  };
  const settings = parseEnv(WORKER_VARIABLES, all, readFile);
  const options = { env: all, readFile, family, slots: 1 };
  return workerConfig(settings, options).list;
}

Deno.test("workerConfig() has the models of the worker's family, and only their keys", () => {
  const idsOf = (list: Reading<WorkerList>) =>
    list.value.file.models.map(({ id }) => id);
  const chat = listOf("chat", { chat_KEY: " a ", image_KEY: "b" });
  assert.deepEqual(idsOf(chat), ["chat"]);
  assert.deepEqual([...chat.value.keys], [["chat_KEY", "a"]]);
  const kinds = ["image", "speech", "transcription", "video"];
  const env = Object.fromEntries(kinds.map((kind) => [`${kind}_KEY`, kind]));
  assert.deepEqual(idsOf(listOf("media", env)), kinds);
});

Deno.test("a key may be in a variable, its file, or the directory of keys", () => {
  const files = {
    "/run/one": " from its file\n",
    "/keys/chat_KEY": "shared\n",
  };
  const cases: { env: Env; key: string; read: string[] }[] = [
    { env: { chat_KEY: "own" }, key: "own", read: [] },
    {
      env: { chat_KEY_FILE: "/run/one" },
      key: "from its file",
      read: ["/run/one"],
    },
    {
      env: { MODEL_KEYS_DIR: "/keys" },
      key: "shared",
      read: ["/keys/chat_KEY"],
    },
    { env: { MODEL_KEYS_DIR: "/keys", chat_KEY: "own" }, key: "own", read: [] },
  ];
  for (const { env, key, read } of cases) {
    const { value, texts } = listOf("chat", env, files);
    assert.equal(value.keys.get("chat_KEY"), key);
    assert.deepEqual([...texts.keys()], ["models.json", ...read]);
  }
});

const WITHOUT_KEY: [env: Env, message: RegExp][] = [
  [{}, /chat_KEY is missing: .*\n.*Set it, or chat_KEY_FILE, in the env/],
  [{ chat_KEY: "" }, /chat_KEY is missing/],
  [{ chat_KEY: " " }, /chat_KEY is missing/],
  [{ chat_KEY_FILE: "/no" }, /chat_KEY_FILE is missing.*\n.*\/no: there is no/],
  [{ chat_KEY_FILE: "/empty" }, /chat_KEY_FILE: its file \/empty is empty/],
  [{ chat_KEY_FILE: "/empty", chat_KEY: "a" }, /both set: remove one/],
  [{ MODEL_KEYS_DIR: "/k" }, /chat_KEY is missing.*\n.*\/k\/chat_KEY: there/],
];

for (const [env, message] of WITHOUT_KEY) {
  Deno.test(`workerConfig() refuses a key with ${JSON.stringify(env)}`, () => {
    assert.throws(
      () => listOf("chat", env, { "/empty": "\n" }),
      (error) => error instanceof ConfigError && message.test(error.message),
    );
  });
}

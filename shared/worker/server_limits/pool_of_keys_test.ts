/** Several keys of one server. */
import assert from "node:assert/strict";
import { parseCatalog } from "../../models/catalog.ts";
import { ConfigError, type Env } from "../../process/env.ts";
import { backendKeys } from "../models/backend_keys.ts";

/** The keys of a server with a pool of three. */
function keysOf(env: Env, files: Record<string, string> = {}) {
  const backend = {
    type: "openai",
    base_url: "http://a/v1",
    model: "m",
    api_key_envs: ["ONE", "TWO", "THREE"],
  };
  const { file } = parseCatalog({ models: [{ id: "m", backends: [backend] }] });
  const readFile = (path: string) => files[path] ?? assert.fail(path);
  return backendKeys(file, { env, readFile });
}

Deno.test("each key of a pool may be in its variable or in a file", () => {
  const env = { ONE: "a", TWO_FILE: "/two", THREE: " c " };
  const keys = keysOf(env, { "/two": "b\n" });
  assert.deepEqual([...keys], [["ONE", "a"], ["TWO", "b"], ["THREE", "c"]]);
});

const WRONG: readonly (readonly [env: Env, mistake: RegExp])[] = [
  [{ ONE: "a", TWO: "b" }, /THREE is missing/],
  [{ ONE: "a", TWO: " ", THREE: "c" }, /TWO is missing/],
  [
    { ONE: "a", TWO: "b", THREE: "a " },
    /ONE and THREE hold the same key: name one of them/,
  ],
];

for (const [env, mistake] of WRONG) {
  Deno.test(`a pool of keys is refused with ${JSON.stringify(env)}`, () => {
    assert.throws(
      () => keysOf(env),
      (error) => error instanceof ConfigError && mistake.test(error.message),
    );
  });
}

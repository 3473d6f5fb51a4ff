import assert from "node:assert/strict";
import { ConfigError, parseEnv } from "../process/env.ts";
import { DEFAULT_MODEL_ID } from "./catalog.ts";
import { CATALOG_VARIABLES, catalogOf } from "./catalog_variables.ts";

const noFiles = (path: string): string => {
  throw new Error(`no file ${path}`);
};

/** How long a stream of the model server given by address may take to begin. */
function firstTokenMsOf(seconds: string | undefined): number | undefined {
  const env = {
    UPSTREAM_BASE_URL: "http://ollama:11434/v1",
    ...(seconds === undefined ? {} : { UPSTREAM_FIRST_TOKEN_SECONDS: seconds }),
  };
  const settings = parseEnv(CATALOG_VARIABLES, env, noFiles);
  const catalog = catalogOf(settings, false);
  const [only] = catalog.get(DEFAULT_MODEL_ID)?.backends ?? [];
  return only?.deadlines.firstTokenMs;
}

const waits: { seconds: string | undefined; ms: number | null }[] = [
  { seconds: undefined, ms: 60_000 },
  { seconds: "", ms: 60_000 },
  { seconds: "0", ms: null },
  { seconds: "1", ms: 1_000 },
  { seconds: "300", ms: 300_000 },
  { seconds: "600", ms: 600_000 },
  { seconds: "601", ms: null },
  { seconds: "1.5", ms: null },
];

for (const { seconds, ms } of waits) {
  Deno.test(`catalogOf() ${ms === null ? "refuses" : "takes"} ${seconds} for UPSTREAM_FIRST_TOKEN_SECONDS`, () => {
    if (ms === null) assert.throws(() => firstTokenMsOf(seconds), ConfigError);
    else assert.equal(firstTokenMsOf(seconds), ms);
  });
}

Deno.test("catalogOf() takes the simulator when no model server is given", () => {
  const simulator = "http://127.0.0.1:8090/v1";
  const urlOf = (env: Record<string, string>) => {
    const settings = parseEnv(CATALOG_VARIABLES, env, noFiles);
    const model = catalogOf(settings, false).get(DEFAULT_MODEL_ID);
    return model?.backends[0]?.baseUrl;
  };
  const env = { MODEL_SIMULATOR_URL: simulator };
  assert.equal(urlOf(env), simulator);
  const upstream = "http://ollama:11434/v1";
  assert.equal(urlOf({ ...env, UPSTREAM_BASE_URL: upstream }), upstream);
  assert.throws(() => urlOf({}), (error) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /no model server: set MODELS_FILE/);
    return true;
  });
});

import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { startFakeModelServer } from "../../tests/support/fake_model_server.ts";
import { freePort } from "../../tests/support/local_server.ts";
import { jsonResponse } from "../../tests/support/model_answers.ts";
import { describeModels } from "./model_servers.ts";
import { readSettings } from "./plan.ts";

Deno.test("describeModels() says of each model what answers, or why nothing does, within two seconds", async () => {
  await using server = startFakeModelServer({
    reply: () => [],
    models: ({ path, headers }) => {
      if (path === "/v1/stall/models") return [{ stall: true }];
      if (path === "/v1/garbage/models") return [{ send: "SSH-2.0-x\r\n\r\n" }];
      if (path === "/v1/busy/models") return jsonResponse({}, { status: 503 });
      if (path !== "/v1/models") return jsonResponse({}, { status: 404 });
      const isGood = headers.get("authorization") === "Bearer good";
      return jsonResponse({ data: [] }, { status: isGood ? 200 : 401 });
    },
  });
  const url = server.baseUrl;
  const dead = `http://127.0.0.1:${freePort()}/v1`;
  const missing = "answers 404 to GET /models, does the URL lack /v1?";
  const rows: [
    [base_url: string, api_key_env?: string],
    ...[says: string, answers: boolean],
  ][] = [
    [[url, "GOOD"], "answers", true],
    [[url, "BAD"], "401, check the key in BAD", false],
    [
      [url],
      "401, it wants a key: set UPSTREAM_API_KEY, or api_key_env in the models file",
      false,
    ],
    [[`${url}/none`], missing, true],
    [[`${url}/busy`], "answers 503 to GET /models", false],
    [[`${url}/stall`], "no answer in 2 s", false],
    [[`${url}/garbage`], "not reachable (invalid http version parsed)", false],
    [[dead], "not reachable (connection refused)", false],
  ];
  const models = rows.map(([[base_url, api_key_env]], nth) => ({
    id: `model-${nth}`,
    backends: [{ type: "openai", base_url, model: "m", api_key_env }],
  }));
  const startedAtMs = performance.now();
  const found = await describeModels({
    ...{ catalog: parseCatalog({ models }), hasSimulator: false },
    keyOf: (name) => name.toLowerCase(),
  });
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs < 3_500, `${tookMs} ms`);
  assert.deepEqual(
    found.map(({ servers, isAnswering }) => [servers, isAnswering]),
    rows.map(([[url], says, answers]) => [`${url} : ${says}`, answers]),
  );
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
  assert.equal(keyOf("OTHER"), "x");
});

// Promise: models that a server lists can be used under their own names, as soon as a
// worker knows them, by the keys that may.
import assert from "node:assert/strict";
import { hiddenField } from "../../../services/key-admin/client_fixture.ts";
import { keyForm } from "../../../services/key-admin/forms_fixture.ts";
import { callApi } from "../../support/chat_request.ts";
import { matchIn, openConsole } from "../../support/gateway/console_client.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { until } from "../../support/wait_for.ts";
import {
  idsOf,
  type ListingServer,
  PATIENT_MS,
  statusOf,
  VECTORS,
} from "./listing_server_fixture.ts";

/** Every model of the one server, under its own name, at each edge. */
export async function offersToClients(
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

/** The models in the console: for keys, and to try. */
export async function offersInConsole(gateway: LaunchedGateway): Promise<void> {
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

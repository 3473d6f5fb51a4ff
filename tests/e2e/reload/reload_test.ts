// Promise: a list of models with mistakes, or without one of its keys, changes nothing,
// and an edge offers no model that no worker has.
import assert from "node:assert/strict";
import { serveSimulator } from "../../../services/model-simulator/simulator.ts";
import { callApi, postChat } from "../../support/chat_request.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { simulates } from "../../support/gateway/simulator.ts";
import { makeTempDir } from "../../support/process.ts";
import { until } from "../../support/wait_for.ts";
import { KEY_ENV, listAfter, replace } from "./changing_list_fixture.ts";

const PATIENT_MS = 60_000;

/** The status of a short request to a model. */
async function statusOf(gateway: LaunchedGateway, key: string, model: string) {
  const statuses = [0, 1].map(async (edge) => {
    const body = { model, messages: simulates("1 token") };
    const answer = await postChat(gateway.baseUrl(edge), key, { body });
    await answer.body?.cancel();
    return answer.status;
  });
  return (await Promise.all(statuses)).join(" ");
}

Deno.test("a wrong list and a lost key change nothing, and operators hear of both", async () => {
  await using one = serveSimulator();
  await using temporary = await makeTempDir();
  const { path: directory } = temporary;
  const urls = [one.url, one.url];
  const MODELS_FILE = `${directory}/models.json`;
  const keyFile = `${directory}/key`;
  await Deno.writeTextFile(keyFile, "key-0");
  await Deno.writeTextFile(MODELS_FILE, listAfter(0, urls));
  await using gateway = await startGateway("launched", {
    edges: 2,
    env: { MODELS_FILE, [`${KEY_ENV}_FILE`]: keyFile },
  });
  const { api_key: key } = gateway.state;
  await replace(MODELS_FILE, `{"models":[{"id":"a","visoin":true}]}`);
  await until(async () => {
    const logs = await gateway.logs();
    const refusing = logs.split("\n").filter((line) =>
      line.includes('"event":"models_refused"') && line.includes("visoin")
    );
    const services = refusing.map((line) => JSON.parse(line).service);
    return new Set(services).size === 4;
  }, PATIENT_MS);
  assert.equal(await statusOf(gateway, key, "extra-0"), "200 200");
  // Only workers need keys: edges have the new model, and do not offer it.
  await Deno.remove(keyFile);
  await replace(MODELS_FILE, listAfter(1, urls));
  await until(
    async () => await statusOf(gateway, key, "extra-0") === "404 404",
    PATIENT_MS,
  );
  const listed = await callApi(`${gateway.baseUrl()}/models`, key);
  const { data } = await listed.json();
  assert.deepEqual(data.map(({ id }: { id: string }) => id), [
    "steady",
    "spoken",
  ]);
  assert.equal(await statusOf(gateway, key, "extra-1"), "503 503");
  assert.equal(await statusOf(gateway, key, "steady"), "200 200");
  await Deno.writeTextFile(keyFile, "key-1");
  await until(
    async () => await statusOf(gateway, key, "extra-1") === "200 200",
    PATIENT_MS,
  );
});

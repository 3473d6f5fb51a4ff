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

const PATIENT_MS = 60_000;
const KEY_ENV = "CHANGING_API_KEY";

/** Where models run, and with what. */
interface Servers {
  readonly urls: readonly string[];
  readonly directory: string;
}

/** The list after so many changes: other servers, weights, keys, and models that go. */
function listAfter(changes: number, { urls }: Servers): string {
  const [one = "", other = ""] = changes % 2 === 0 ? urls : urls.toReversed();
  const backend = (model: string, base_url: string, more: object = {}) => (
    { type: "openai", model, base_url, api_key_env: KEY_ENV, ...more }
  );
  const chat = (id: string) => ({
    id,
    backends: [
      backend("neutral-3.7-plus", one, { name: "one" }),
      backend("neutral-3.7-plus", other, {
        name: "other",
        weight: changes % 5 + 1,
        headers: { "x-change": `${changes}` },
      }),
    ],
  });
  const speech = {
    id: "spoken",
    kind: "speech",
    backends: [backend("simulated-speech-1", one)],
  };
  const models = [chat("steady"), speech, chat(`extra-${changes}`)];
  return JSON.stringify({ models });
}

/** Replaces a file as editors do. */
async function replace(path: string, text: string): Promise<void> {
  await Deno.writeTextFile(`${path}~`, text);
  await Deno.rename(`${path}~`, path);
}

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
  const servers = { urls: [one.url, one.url], directory };
  const MODELS_FILE = `${directory}/models.json`;
  const keyFile = `${directory}/key`;
  await Deno.writeTextFile(keyFile, "key-0");
  await Deno.writeTextFile(MODELS_FILE, listAfter(0, servers));
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
  await replace(MODELS_FILE, listAfter(1, servers));
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

// Promise: models that several servers list can be used under their own names, as soon
// as a worker knows them, and no longer than they exist.
import assert from "node:assert/strict";
import { callApi } from "../../support/chat_request.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { until } from "../../support/wait_for.ts";
import { replace } from "../reload/changing_list_fixture.ts";
import type { Rig } from "../reload/rig_fixture.ts";
import {
  idsOf,
  PATIENT_MS,
  startListingServer,
  statusOf,
} from "./listing_server_fixture.ts";

/** How many of the 10,000 models of a server have a kind in the list: 7, 99 and 99…. */
const MANY_OFFERED = 112;

/** A server of the models file that is asked every second. */
const server = (name: string, base_url: string, more: object = {}) => (
  {
    type: "openai",
    name,
    base_url,
    discover: { every_seconds: 1 },
    ...more,
  }
);

/** Begins 24 conversations with a model. */
async function askMany(gateway: LaunchedGateway, key: string) {
  const url = `${gateway.baseUrl()}/chat/completions`;
  for (let index = 0; index < 24; index++) {
    const content = `Question ${index}`;
    const answer = await callApi(url, key, {
      body: { model: "both", messages: [{ role: "user", content }] },
    });
    assert.equal(answer.status, 200);
    await answer.body?.cancel();
  }
}

/** Follows the lists of several servers, of which one fails and one has 10,000 models. */
export async function checkSeveralServers(
  { gateway, files }: Rig,
): Promise<void> {
  await using one = startListingServer(["both", "old"]);
  await using two = startListingServer(["both"]);
  await using many = startListingServer(
    Array.from({ length: 10_000 }, (_, index) => `model-${index}`),
  );
  await using broken = startListingServer([]);
  broken.says("<html>It works!</html>");
  const servers = [
    server("one", one.baseUrl),
    server("two", two.baseUrl),
    server("many", many.baseUrl, {
      discover: { prefix: "many/", every_seconds: 3_600 },
      kinds: { "model-*": "none", "model-7": "chat", "model-99*": "chat" },
    }),
    server("broken", broken.baseUrl),
    server("gone", "http://127.0.0.1:9/v1"),
  ];
  await replace(files.models, JSON.stringify({ servers }));
  const { api_key: key } = gateway.state;
  const lists = (id: string) => async () =>
    (await idsOf(gateway, key)).includes(id);
  const own = ["both", "old"];
  const ids = await until(async () => {
    const listed = await idsOf(gateway, key);
    return listed.length === own.length + MANY_OFFERED && listed;
  }, PATIENT_MS);
  const offered = ids.filter((id) => /^many\/model-(7|99\d*)$/.test(id));
  assert.equal(offered.length, MANY_OFFERED);
  assert.deepEqual(ids.filter((id) => own.includes(id)).sort(), own);
  assert.equal(await statusOf(gateway, key, "many/model-9999"), "200");
  assert.deepEqual(many.modelsOfRequests(), ["model-9999"]);
  await askMany(gateway, key);
  assert.ok(
    one.modelsOfRequests().length >= 3 && two.modelsOfRequests().length >= 3,
  );
  one.lists(["both", "new:1"]);
  await until(lists("new:1"), PATIENT_MS);
  await until(async () => !await lists("old")(), PATIENT_MS);
  assert.equal(await statusOf(gateway, key, "new:1"), "200");
  // Not "busy": trying again would not help.
  assert.equal(await statusOf(gateway, key, "old"), "404 model_not_found");
  assert.equal(await statusOf(gateway, key, "never"), "404 model_not_found");
  // A list that turns into nonsense takes nothing away.
  one.says('{"data":"none"}');
  two.lists(["both", "newer"]);
  await until(lists("newer"), PATIENT_MS);
  assert.equal(await statusOf(gateway, key, "new:1"), "200");
}

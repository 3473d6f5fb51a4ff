// Promise: a list of models with mistakes, or without one of its keys, changes nothing,
// and an edge offers no model that no worker has. While edges and workers have
// different lists, each request gets an answer or a clear error.
import assert from "node:assert/strict";
import { callApi, postChat } from "../../support/chat_request.ts";
import { simulates } from "../../support/gateway/simulator.ts";
import {
  choiceChunk,
  chunk,
  event,
  lastChunk,
  streamHead,
} from "../../support/model_servers/model_answers.ts";
import {
  textOf,
  VanishingServer,
} from "../../support/model_servers/vanishing_server.ts";
import { until } from "../../support/wait_for.ts";
import { listAfter, otherList, replace } from "./changing_list_fixture.ts";
import { PATIENT_MS, type Rig } from "./rig_fixture.ts";

/** What reads the list of chat models, and how many processes these are. */
const READERS: readonly string[] = ["edge-auth", "chat-worker"];
const PROCESSES = 4;

/** A wrong list and a lost key change nothing, and operators hear of both. */
export async function checkMistakes(
  t: Deno.TestContext,
  rig: Rig,
): Promise<void> {
  const { gateway, files, key, urls } = rig;
  await replace(files.models, `{"models":[{"id":"a","visoin":true}]}`);
  await until(async () => {
    const logs = await gateway.logs();
    const refusing = logs.split("\n").filter((line) =>
      line.includes('"event":"models_refused"') && line.includes("visoin")
    );
    const services = refusing.map((line) => JSON.parse(line).service);
    return new Set(services).size === 4;
  }, PATIENT_MS);
  assert.equal(await rig.chat("extra-0"), "200");
  // Only workers need keys: edges have the new model, and do not offer it.
  await Deno.remove(files.key);
  await replace(files.models, listAfter(1, urls));
  await rig.becomes("extra-0", "404 model_not_found");
  const listed = await callApi(`${gateway.baseUrl()}/models`, key);
  const { data } = await listed.json();
  assert.deepEqual(data.map(({ id }: { id: string }) => id), [
    "steady",
    "spoken",
  ]);
  assert.equal(await rig.chat("extra-1"), "503 overloaded");
  assert.equal(await rig.chat("steady"), "200");
  await t.step("edges and workers with different lists", () => disagree(rig));
  await t.step("a server that still answers leaves the list", () => leave(rig));
}

/**
 * Workers keep their list, since they miss a key: that lasts for as long as it takes.
 */
async function disagree(rig: Rig): Promise<void> {
  const { gateway, files, urls } = rig;
  const budget = await gateway.createKey("--budget-day=1");
  // Neither running answers nor their workers are lost, whatever the lists say.
  const controls = "120 tokens, 20 tokens per second";
  const body = { model: "steady", stream: true, messages: simulates(controls) };
  const streams = [0, 1].map(async (edge) => {
    const url = gateway.baseUrl(edge);
    return await (await postChat(url, rig.key, { body })).text();
  });
  const unpriced = await rig.chat("steady", {}, budget.key);
  await replace(files.models, otherList(urls[0]));
  await rig.becomes("extra-1", "404 model_not_found");
  assert.equal(await rig.chat("steady"), "200");
  assert.deepEqual({
    unpriced,
    priced: await rig.chat("steady", { max_tokens: 5 }, budget.key),
    bound: await rig.chat("steady", { max_tokens: 60 }),
    "only edges": await rig.chat("added"),
    "only workers": await rig.chat("extra-0"),
    "another kind": await rig.chat("spoken"),
    "its former kind": await rig.speak("spoken"),
  }, {
    unpriced: "403 forbidden",
    priced: "200",
    bound: "400 integer_above_max_value",
    "only edges": "503 overloaded",
    "only workers": "404 model_not_found",
    "another kind": "503 overloaded",
    "its former kind": "404 model_not_found",
  });
  await Deno.writeTextFile(files.key, "key-1");
  for (const model of ["added", "spoken", "steady"]) {
    await rig.becomes(model, "200");
  }
  for (const text of await Promise.all(streams)) {
    assert.match(text, /\ndata: \[DONE\]\n\n$/);
  }
  // The worker of the former kind has it for two minutes more, and is not asked.
  assert.doesNotMatch(await gateway.logs(), /"event":"worker_lost"/);
}

/** What runs at a server that is removed ends there, or at those that it had beside. */
async function leave(rig: Rig): Promise<void> {
  const { gateway, files, key, urls } = rig;
  await using gone = await VanishingServer.open();
  const say = (content: string) => chunk(event(choiceChunk({ content })));
  gone.start = textOf([streamHead(), say("Hel")]);
  const list = (addresses: readonly string[]) => {
    const backends = addresses.map((base_url, preference) => (
      { type: "openai", model: "neutral-3.7-plus", base_url, preference }
    ));
    return replace(
      files.models,
      JSON.stringify({ models: [{ id: "m", backends }] }),
    );
  };
  /** Writes the list, and waits until both edges and both workers have read it. */
  const change = async (addresses: readonly string[]) => {
    const sinceMs = Date.now();
    await list(addresses);
    await until(async () => {
      const lines = (await gateway.logs()).split("\n").filter((line) =>
        line.includes('"event":"models_read"')
      ).map((line) => JSON.parse(line)).filter(({ time, service }) =>
        Date.parse(time) >= sinceMs && READERS.includes(service)
      );
      return lines.length === PROCESSES;
    }, PATIENT_MS);
  };
  await change([gone.url, urls[0]]);
  const ask = ({ stream }: { stream: boolean }) =>
    postChat(gateway.baseUrl(), key, {
      body: { model: "m", stream, messages: simulates("1 token") },
    });
  const answer = await ask({ stream: true });
  gone.start = "";
  const whole = ask({ stream: false });
  await until(() => gone.requests === 2 || undefined);
  await change([urls[0]]);
  assert.equal(await rig.chat("m"), "200");
  const [streams, silent] = gone.sockets;
  silent?.resetAndDestroy();
  const { usage } = await (await whole).json();
  assert.equal(usage.completion_tokens, 1, "another server has answered");
  const end = [
    say("lo"),
    chunk(event(choiceChunk({}, "stop"))),
    chunk(event("[DONE]")),
    lastChunk,
  ];
  streams?.write(textOf(end));
  const text = await answer.text();
  assert.match(text, /"Hel"[^]*"lo"[^]*\ndata: \[DONE\]\n\n$/);
  assert.equal(gone.requests, 2);
}

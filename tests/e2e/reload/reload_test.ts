// Promise: a list of models with mistakes, or without one of its keys, changes nothing,
// and an edge offers no model that no worker has. While edges and workers have
// different lists, each request gets an answer or a clear error.
import assert from "node:assert/strict";
import { serveSimulator } from "../../../services/model-simulator/simulator.ts";
import { callApi, postChat } from "../../support/chat_request.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
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
import { makeTempDir } from "../../support/process.ts";
import { until } from "../../support/wait_for.ts";
import {
  KEY_ENV,
  listAfter,
  otherList,
  replace,
} from "./changing_list_fixture.ts";

const PATIENT_MS = 60_000;

/** A gateway of two edges whose list and whose key of a server are files. */
class Rig implements AsyncDisposable {
  readonly #owned: AsyncDisposableStack;
  readonly gateway: LaunchedGateway;
  readonly files: { readonly models: string; readonly key: string };
  readonly urls: readonly [string, string];

  static async start(): Promise<Rig> {
    await using starting = new AsyncDisposableStack();
    const { url } = starting.use(serveSimulator());
    const { path } = starting.use(await makeTempDir());
    const files = { models: `${path}/models.json`, key: `${path}/key` };
    await Deno.writeTextFile(files.key, "key-0");
    await Deno.writeTextFile(files.models, listAfter(0, [url, url]));
    const gateway = starting.use(
      await startGateway("launched", {
        edges: 2,
        env: { MODELS_FILE: files.models, [`${KEY_ENV}_FILE`]: files.key },
      }),
    );
    return new Rig(starting.move(), { gateway, files, url });
  }

  private constructor(
    owned: AsyncDisposableStack,
    { gateway, files, url }: Pick<Rig, "gateway" | "files"> & { url: string },
  ) {
    this.#owned = owned;
    this.gateway = gateway;
    this.files = files;
    this.urls = [url, url];
  }

  get key(): string {
    return this.gateway.state.api_key;
  }

  /** Posts to both edges, and returns their statuses with the codes of errors. */
  async ask(path: string, body: object, key = this.key): Promise<string> {
    const answers = [0, 1].map(async (edge) => {
      const url = `${this.gateway.baseUrl(edge)}/${path}`;
      const answer = await callApi(url, key, { body });
      const text = await answer.text();
      const code = answer.ok ? "" : ` ${JSON.parse(text).error.code}`;
      return `${answer.status}${code}`;
    });
    return [...new Set(await Promise.all(answers))].join();
  }

  /** As {@link ask}, of a short chat request. */
  chat(model: string, more: object = {}, key = this.key): Promise<string> {
    const messages = simulates("1 token");
    return this.ask("chat/completions", { model, messages, ...more }, key);
  }

  speak(model: string): Promise<string> {
    return this.ask("audio/speech", { model, input: "Hello", voice: "a" });
  }

  /** Waits until both edges answer a short chat request with this. */
  becomes(model: string, status: string): Promise<unknown> {
    return until(
      async () => await this.chat(model) === status || undefined,
      PATIENT_MS,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync();
  }
}

Deno.test("a wrong list and a lost key change nothing, and operators hear of both", async (t) => {
  await using rig = await Rig.start();
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
});

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
  const logged = async () =>
    (await gateway.logs()).split("\n").filter((line) =>
      line.includes('"event":"models_read"') &&
      /"service":"(chat-worker|edge-auth)"/.test(line)
    ).length;
  let read = await logged();
  /** Both edges and the worker have read it. */
  const isRead = async () => {
    await until(
      async () => await logged() >= read + 3 || undefined,
      PATIENT_MS,
    );
    read += 3;
  };
  await list([gone.url, urls[0]]);
  await isRead();
  const ask = (stream: boolean) =>
    postChat(gateway.baseUrl(), key, {
      body: { model: "m", stream, messages: simulates("1 token") },
    });
  const answer = await ask(true);
  gone.start = "";
  const whole = ask(false);
  await until(() => gone.requests === 2 || undefined);
  await list([urls[0]]);
  await isRead();
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

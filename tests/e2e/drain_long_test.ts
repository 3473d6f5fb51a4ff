// Promise: an operator who drains a server on the page Models of the console loses no
// running answer; new requests go elsewhere, also when a worker or the console starts
// later, and come back with one click. Probed servers are asked by running workers.
import assert from "node:assert/strict";
import { postChat } from "../support/chat_request.ts";
import { openConsole } from "../support/gateway/console_client.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import {
  simulates,
  startSimulator,
  type WatchedSimulator,
} from "../support/gateway/simulator.ts";
import { makeTempDir } from "../support/process.ts";
import { until } from "../support/wait_for.ts";

const STREAMS = 8;
const LASTING_TOKENS = 180;
const SHORT = "1 token";
const PATIENT_MS = 60_000;

/** The gateway, and the two servers of its model. */
class Rig {
  #requests = 0;

  constructor(
    readonly gateway: LaunchedGateway,
    readonly one: WatchedSimulator,
    readonly other: WatchedSimulator,
  ) {}

  /** Sends a request; each is a conversation of its own, which any server may get. */
  ask(controls = SHORT, { stream = false } = {}): Promise<Response> {
    this.#requests += 1;
    const [message = assert.fail()] = simulates(controls);
    const content = `${message.content} ${this.#requests}`;
    const messages = [{ role: "user", content }];
    const body = { model: "m", stream, messages };
    const { state } = this.gateway;
    return postChat(this.gateway.baseUrl(), state.api_key, { body });
  }

  /** Sends a short request, and returns the status of its answer. */
  async status(): Promise<number> {
    const answer = await this.ask();
    await answer.body?.cancel();
    return answer.status;
  }

  /** Sends some requests, of which the first server must not get any. */
  async spareTheFirst(): Promise<void> {
    const before = this.one.requests.length;
    for (let each = 0; each < 6; each += 1) {
      const answer = await this.ask();
      assert.equal(answer.status, 200, await answer.text());
    }
    assert.equal(this.one.requests.length, before);
  }

  /** Waits until the first process of a service exports this metric. */
  async exports(service: string, metric: string): Promise<void> {
    await until(async () => {
      const [url] = (await this.gateway.refresh()).ops_urls[service] ?? [];
      // It may not have started yet.
      const answer = await fetch(`${url}/metrics`).catch(() => null);
      return (await answer?.text() ?? "").includes(`\n${metric}`);
    }, PATIENT_MS);
  }
}

const backendAt = (name: string, base_url: string, more: object = {}) => (
  { type: "openai", name, model: "neutral-3.7-plus", base_url, ...more }
);

/** A model with two servers, and one that nobody uses, whose server is probed. */
function listOf(one: string, other: string, watched: string): string {
  const backends = [backendAt("one", one), backendAt("other", other)];
  const probe = { every_seconds: 5 };
  const idle = [backendAt("gpu", watched, { probe })];
  return JSON.stringify({
    models: [{ id: "m", backends }, { id: "idle", backends: idle }],
  });
}

Deno.test("a server that is drained in the console ends what it runs, gets nothing more, and comes back", async () => {
  await using one = startSimulator();
  await using other = startSimulator();
  await using watched = startSimulator();
  await using temporary = await makeTempDir();
  const MODELS_FILE = `${temporary.path}/models.json`;
  const list = listOf(one.url, other.url, watched.url);
  await Deno.writeTextFile(MODELS_FILE, list);
  await using gateway = await startGateway("launched", {
    workers: 2,
    env: { MODELS_FILE },
  });
  const t = new Rig(gateway, one, other);
  const browser = await openConsole(gateway);
  const change = async (path: "change" | "undo", backend: string) => {
    const form = { model: "m", backend, what: "drain" };
    const { status, text } = await browser.post(`/models/${path}`, {
      ...form,
      ...path === "change" && { reason: "New driver" },
    });
    assert.equal(status, 303, text);
  };
  const lasting = `${LASTING_TOKENS} tokens, 60 tokens per second`;
  const streams = Array.from({ length: STREAMS }, async () => {
    const answer = await t.ask(lasting, { stream: true });
    return await answer.text();
  });
  await until(
    () => one.requests.length > 0 && other.requests.length > 0,
    PATIENT_MS,
  );
  await change("change", "one");
  await t.spareTheFirst();
  for (const text of await Promise.all(streams)) {
    assert.ok(text.endsWith("data: [DONE]\n\n"), text.slice(-200));
    assert.doesNotMatch(text, /"error"/);
  }
  await restart(t, "chat-worker");
  await restart(t, "key-admin");
  await t.exports(
    "key-admin",
    'gateway_override_age_seconds{what="drain",model="m",backend="one"}',
  );
  assert.match((await browser.get("/models")).text, /one of m drained/);
  await change("change", "other");
  await until(async () => await t.status() === 503, PATIENT_MS);
  const refused = await t.ask();
  const { error } = await refused.json();
  assert.equal(error.code, "service_unavailable");
  assert.match(error.message, /taken all servers of this model out of use/);
  for (const backend of ["one", "other"]) await change("undo", backend);
  const before = one.requests.length;
  await until(async () => {
    await t.status();
    return one.requests.length > before;
  }, PATIENT_MS);
  // Nobody has sent a request there, but a worker has asked.
  await until(() => watched.requests.length > 0, PATIENT_MS);
});

/** Kills a process without a warning. The one that follows must know the drain. */
async function restart(t: Rig, service: string): Promise<void> {
  const { gateway } = t;
  await gateway.refresh();
  const pid = gateway.pid(service);
  Deno.kill(pid, "SIGKILL");
  await gateway.isReplaced(service, pid);
  await until(async () => await t.status() === 200, PATIENT_MS);
  await t.spareTheFirst();
}

// Promises: requests that wait for a slot are served by accounts in turn, then by keys,
// batch requests of an account last, at one edge and over several; whoever finds a
// queue full hears when to come again; a model decides how many wait and how long.
import assert from "node:assert/strict";
import {
  type ModelCatalog,
  parseCatalog,
} from "@gateway/shared/models/catalog";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import type { QueueSettings } from "../../services/edge-auth/dispatch/queue/share.ts";
import { leaseOf } from "../../services/edge-auth/requests/lease_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type {
  EdgeOptions,
  InProcessEdge,
} from "../support/gateway/in_process_edge.ts";
import { chatReply } from "../support/model_servers/model_answers.ts";
import { startScriptedServer } from "../support/model_servers/scripted_server.ts";
import { callApi } from "../support/chat_request.ts";
import { until } from "../support/wait_for.ts";

/** Two keys of one account, and one of another. */
const CALLERS = ["a1", "a2", "b1"].map((keyId) => ({
  keyId,
  ownerId: keyId.slice(0, 1),
  key: mintKey(randomBytes),
}));

/** How many times longer edges and worker wait for each other. */
const SLOWER = 4;

interface SetupOptions {
  /** The time of streams is that of their clients, so it is not stretched. */
  streamHeadMs?: number;
  /** How the requests of keys wait, as admission tells it. */
  settings?: Record<string, QueueSettings>;
}

/** What an edge knows of the callers. */
function doorOf(
  catalog: ModelCatalog,
  { streamHeadMs, settings = {} }: SetupOptions,
): Required<EdgeOptions>["door"] {
  const hashes = new Map(
    CALLERS.map((each) => [hashKeyValue(each.key), each] as const),
  );
  return {
    catalog,
    ...streamHeadMs !== undefined && { streamHeadMs },
    keys: { find: (hash) => Promise.resolve(hashes.get(hash) ?? null) },
    admission: {
      modelsOf: () => Promise.resolve([]),
      checkRefused: () => Promise.resolve(),
      admit: (principal) => {
        const queue = settings[principal.keyId];
        return Promise.resolve({ ...leaseOf(principal), queue });
      },
    },
  };
}

/** A gateway with one slot, whose model server answers when the test says so. */
async function setup(queue: object, options: SetupOptions = {}) {
  await using starting = new AsyncDisposableStack();
  /** What the server was asked, in its order, and how each is answered. */
  const questions: { name: string; answer: () => void }[] = [];
  const server = starting.use(startScriptedServer({
    reply: (request) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const name = /"name":"([^"]+)"/.exec(request.body)?.[1] ?? "";
      questions.push({ name, answer: resolve });
      return [{ until: promise }, ...chatReply({ words: [name] })(request)];
    },
  }));
  const backend = { type: "openai", base_url: server.baseUrl, model: "theirs" };
  const models = [{ id: "m", queue, backends: [backend] }];
  const catalog = parseCatalog({ models });
  const door = doorOf(catalog, options);
  // Edges and worker share the process of the test, and all of it may stand still: to
  // none of them, a moment of that is another one's silence.
  const slower = options.streamHeadMs === undefined ? SLOWER : 1;
  const parts = { door, slower };
  const gateway = starting.use(await startGateway("open", parts));
  const { baseUrl } = server;
  const { link } = await gateway.addWorker(
    { baseUrl },
    { catalog, slots: 1, slower },
  );
  await until(() => gateway.edge.dispatcher.workers.totals().workers === 1);
  const { edge } = gateway;
  const running = starting.move();
  return {
    edge,
    questions,
    /** Starts a second edge. */
    addEdge: () => gateway.addEdge(parts),
    worker: link,
    /** Sends a request of the key whose id its name begins with. */
    ask: (name: string, { edge = 0, ...more }: Asking = {}) =>
      ask(gateway.baseUrl(edge), name, more),
    /** Waits until this many requests wait for the slot. */
    waiting: (count: number) =>
      until(() => edge.dispatcher.queue.length === count),
    /** Lets the server answer whatever it is asked, and returns in which order it was. */
    async drain(count: number): Promise<string> {
      const names: string[] = [];
      while (names.length < count) {
        const next = await until(() => questions.shift());
        names.push(next.name);
        next.answer();
      }
      return names.join(" ");
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** Lets edges tell a worker what waits there. */
async function tell(edges: InProcessEdge[], worker: BusLink): Promise<void> {
  for (const { dispatcher, link } of edges) {
    dispatcher.beats.beat();
    await link.flush();
  }
  await worker.flush();
}

interface Asking {
  edge?: number;
  priority?: string;
  stream?: boolean;
  maxTokens?: number;
  signal?: AbortSignal;
}

function ask(
  baseUrl: string,
  name: string,
  { priority, stream = false, maxTokens = 10, signal }: Asking,
): Promise<Response> {
  const { key = "" } = CALLERS.find((each) => name.startsWith(each.keyId)) ??
    assert.fail(name);
  const messages = [{ role: "user", content: "Hi", name }];
  const answer = callApi(`${baseUrl}/chat/completions`, key, {
    body: { model: "m", messages, max_tokens: maxTokens, stream },
    headers: priority === undefined ? {} : { "x-gateway-priority": priority },
    ...signal && { signal },
  });
  // A test that fails before it reads the answer fails for its own reason.
  answer.catch(() => {});
  return answer;
}

const MINUTE = { wait_seconds: 60 };

Deno.test("requests that wait are served by accounts, then keys, batch ones of an account last", async () => {
  await using t = await setup(MINUTE);
  const requests: { name: string; priority?: string }[] = [
    { name: "a1-first" },
    { name: "a1-late", priority: "batch" },
    { name: "a1-1" },
    { name: "a1-2", priority: "normal" },
    { name: "a1-3" },
    { name: "a2-1" },
    { name: "b1-1" },
    { name: "b1-2" },
  ];
  const answers: Promise<Response>[] = [];
  for (const [index, { name, ...more }] of requests.entries()) {
    answers.push(t.ask(name, more));
    if (index === 0) await until(() => t.questions.length === 1);
    else await t.waiting(index);
  }
  assert.equal(
    await t.drain(requests.length),
    "a1-first a1-1 b1-1 a2-1 b1-2 a1-2 a1-3 a1-late",
  );
  for (const answer of await Promise.all(answers)) {
    assert.equal(answer.status, 200);
    await answer.body?.cancel();
  }
});

Deno.test("an account of more weight is served more often, and a key that is set to batch last", async () => {
  const usual = { weight: 1, keyWeight: 1, isBatch: false };
  await using t = await setup(MINUTE, {
    settings: {
      a2: { ...usual, isBatch: true },
      b1: { ...usual, weight: 2 },
    },
  });
  const names = ["a1-first", "a2-1", "a1-1", "a1-2", "b1-1", "b1-2", "b1-3"];
  const answers: Promise<Response>[] = [];
  for (const [index, name] of names.entries()) {
    // No header lets a key that is set to batch go before others.
    answers.push(t.ask(name, { priority: "normal" }));
    if (index === 0) await until(() => t.questions.length === 1);
    else await t.waiting(index);
  }
  assert.equal(
    await t.drain(names.length),
    "a1-first a1-1 b1-1 b1-2 a1-2 b1-3 a2-1",
  );
  for (const answer of await Promise.all(answers)) await answer.body?.cancel();
});

Deno.test("requests that wait at two edges are served by accounts in turn, whoever frees the slot", async () => {
  await using t = await setup(MINUTE);
  const other = await t.addEdge();
  await until(() => other.dispatcher.workers.totals().workers === 1);
  const answers = [t.ask("a1-first")];
  await until(() => t.questions.length === 1);
  for (const [index, name] of ["a1-1", "a1-2", "a1-3", "a1-4"].entries()) {
    answers.push(t.ask(name));
    await t.waiting(index + 1);
  }
  for (const name of ["b1-1", "b1-2"]) {
    answers.push(t.ask(name, { edge: 1 }));
    await until(() => other.dispatcher.queue.length === Number(name.at(-1)));
  }
  // What has waited for less than a beat is too quick for turns of edges.
  const { queue } = other.dispatcher;
  await until(() =>
    (queue.lanes().get("m")?.oldestMs ?? 0) >= DISPATCH_LIMITS.edgeBeatMs
  );
  await tell([t.edge, other], t.worker);
  assert.equal(
    await t.drain(answers.length),
    "a1-first a1-1 b1-1 a1-2 b1-2 a1-3 a1-4",
  );
  for (const answer of await Promise.all(answers)) {
    assert.equal(answer.status, 200);
    await answer.body?.cancel();
  }
});

Deno.test("a queue that is full says when to come again, and lets the largest account give way", async () => {
  await using t = await setup({ ...MINUTE, requests_max: 2 });
  const first = t.ask("a1-first");
  await until(() => t.questions.length === 1);
  const waits = t.ask("a1-1");
  await t.waiting(1);
  const givesWay = t.ask("a1-2");
  await t.waiting(2);
  const refused = await t.ask("a1-3");
  const other = t.ask("b1-1");
  for (const answer of [refused, await givesWay]) {
    assert.equal(answer.status, 429);
    assert.equal(answer.headers.get("retry-after"), "1");
    const { error } = await answer.json();
    assert.equal(error.code, "queue_full");
    assert.match(error.message, /wait for the model 'm'/);
  }
  await t.waiting(2);
  assert.equal(await t.drain(3), "a1-first a1-1 b1-1");
  for (const answer of await Promise.all([first, waits, other])) {
    assert.equal(answer.status, 200);
    await answer.body?.cancel();
  }
});

Deno.test("a queue is also bounded by the tokens that those who wait ask for", async () => {
  await using t = await setup({ ...MINUTE, tokens_max: 1_000 });
  const first = t.ask("a1-first");
  await until(() => t.questions.length === 1);
  const large = await t.ask("a1-1", { maxTokens: 1_000 });
  assert.equal(large.status, 429);
  await large.body?.cancel();
  const small = t.ask("a1-2", { maxTokens: 900 });
  await t.waiting(1);
  assert.equal(await t.drain(2), "a1-first a1-2");
  for (const answer of [await first, await small]) await answer.body?.cancel();
});

Deno.test("a model whose queue waits for no time answers at once, and one who leaves frees a place", async () => {
  await using t = await setup({ wait_seconds: 0 });
  const first = t.ask("a1-first");
  await until(() => t.questions.length === 1);
  const refused = await t.ask("b1-1");
  assert.equal(refused.status, 503);
  assert.equal((await refused.json()).error.code, "overloaded");
  assert.equal(await t.drain(1), "a1-first");
  await (await first).body?.cancel();

  await using one = await setup({ ...MINUTE, requests_max: 1 });
  const holder = one.ask("a1-first");
  await until(() => one.questions.length === 1);
  const client = new AbortController();
  void one.ask("a1-1", { signal: client.signal });
  await one.waiting(1);
  client.abort();
  await one.waiting(0);
  const next = one.ask("a1-2");
  await one.waiting(1);
  assert.equal(await one.drain(2), "a1-first a1-2");
  for (const answer of [await holder, await next]) await answer.body?.cancel();
});

Deno.test("a stream gets signs of life while it waits, and an error event when its time is over", async () => {
  await using t = await setup({ wait_seconds: 60 }, { streamHeadMs: 1 });
  const first = t.ask("a1-first");
  await until(() => t.questions.length === 1);
  const answer = await t.ask("a1-1", { stream: true });
  assert.equal(answer.status, 200);
  const reader = answer.body?.pipeThrough(new TextDecoderStream())
    .getReader() ?? assert.fail("no body");
  assert.match((await reader.read()).value ?? "", /^: /);
  await t.waiting(1);
  assert.equal(await t.drain(2), "a1-first a1-1");
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    text += value;
  }
  assert.match(text, /"content":"a1-1"[^]*\[DONE\]\n\n$/);
  await (await first).body?.cancel();

  await using short = await setup({ wait_seconds: 0.2 }, { streamHeadMs: 1 });
  const holder = short.ask("a1-first");
  await until(() => short.questions.length === 1);
  const refused = await short.ask("a1-1", { stream: true });
  assert.match(await refused.text(), /^: [^]*data: \{"error":.*"overloaded"/m);
  assert.equal(await short.drain(1), "a1-first");
  await (await holder).body?.cancel();
});

Deno.test("nobody goes before others by a header", async () => {
  await using t = await setup(MINUTE);
  const answer = await t.ask("a1", { priority: "high" });
  assert.equal(answer.status, 400);
  const { error } = await answer.json();
  assert.match(error.message, /X-Gateway-Priority/);
  assert.equal(t.questions.length, 0);
});

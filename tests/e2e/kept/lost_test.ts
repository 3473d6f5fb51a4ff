// Promises: an answer that is kept outlives its edge, and is charged once, by whoever
// finds its end; a worker that is lost leaves what it had said, with the error; without
// a log nothing is promised.
import assert from "node:assert/strict";
import { usageKey } from "@gateway/shared/keys/record";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { DEFAULT_MODEL_ID, parseCatalog } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import type { LimitedGateway, TestKey } from "../../support/gateway/limited.ts";
import { hello } from "../../support/model_servers/scripted_model_server.ts";
import { until, waitFor } from "../../support/wait_for.ts";
import {
  askKept,
  contentOf,
  EventReader,
  getKept,
  idOf,
  startKeeping,
} from "./kept_rig.ts";

/** A thousandth of the currency for each token of an answer. */
const PRICED = parseCatalog({
  models: [{
    id: DEFAULT_MODEL_ID,
    prices: { input: "0", output: "1000" },
    backends: [{ type: "openai", base_url: "http://a/v1", model: "m" }],
  }],
});

/** Requests and completion tokens that a key was charged today. */
async function charged(
  { world }: LimitedGateway,
  key: TestKey,
): Promise<{ requests: number; tokens: number }> {
  const name = usageKey(key, usageDay(Date.now()));
  const reply = await world.command("HGETALL", name);
  const list = Array.isArray(reply) ? reply.map(String) : [];
  const sum = (counter: string) =>
    list.reduce(
      (all, field, at) =>
        new RegExp(`^\\d\\d:${counter}\\b`).test(field)
          ? all + Number(list[at + 1])
          : all,
      0,
    );
  return { requests: sum("req"), tokens: sum("out") };
}

/** Cuts an edge off from everything, as if it had been killed. */
async function killFirstEdge({ edge }: LimitedGateway): Promise<void> {
  edge.proxy.set({ refuse: true });
  edge.proxy.cut();
  await edge.link.close();
}

/** How an edge is lost. */
const LOSSES: Record<string, (gateway: LimitedGateway) => Promise<void>> = {
  "is killed": killFirstEdge,
  "has to stop": ({ edge }) => {
    const error = new ApiError("server_shutdown", "It stops.");
    edge.dispatcher.cancelAll("shutdown", error);
    return until(() => edge.dispatcher.running === 0).then(() => {});
  },
};

/** An answer goes on, and is sent and settled by another edge. */
async function outlivesItsEdge(
  lose: (gateway: LimitedGateway) => Promise<void>,
): Promise<void> {
  // The worker notices the loss within three seconds.
  await using gateway = await startKeeping({
    workerSlower: 1,
    door: { catalog: PRICED },
  });
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one ");
  const response = await asking;
  const id = idOf(response);
  const first = new EventReader(response);
  while (!first.text.includes("one ")) await first.next();
  await lose(gateway);
  await first.cut();
  const resumed = await getKept([gateway, key], `${id}?after=${first.lastId}`);
  const rest = new EventReader(resumed);
  // Longer than a worker without a log would run for an edge that is silent.
  await waitFor(
    () => gateway.worker.worker.jobs.every(({ sender }) => sender.isFinished),
    { what: "the worker to miss the edge" },
  );
  call.say("two ");
  while (!rest.text.includes("two ")) await rest.next();
  assert.equal(call.abortedAtMs, null, "it was stopped");
  call.end(2);
  assert.equal(contentOf(first.text + await rest.rest()), "one two ");
  const [, other = assert.fail()] = gateway.edges;
  const { answers, orphans } = other.keeping ?? assert.fail();
  const requestId = id.slice("req_".length);
  await answers.records.setDueIn(0, [{ ownerId: key.ownerId, requestId }]);
  // Two at once: the script that settles lets one count.
  await Promise.all([orphans.look(), orphans.look()]);
  assert.equal(await gateway.leases(key), 0);
  assert.deepEqual(await charged(gateway, key), { requests: 1, tokens: 2 });
  // Where two have looked, one of them has charged it.
  const costs = other.log.lines
    .filter(({ event }) => event === "kept_answer_taken_over")
    .map(({ fields: { keyId, model, cost } }) => [keyId, model, cost]);
  assert.deepEqual(costs, [[key.keyId, DEFAULT_MODEL_ID, "0.002"]]);
  const accept = "application/json";
  const state = await getKept([gateway, key], id, { headers: { accept } });
  assert.equal((await state.json()).state, "complete");
  assert.equal(gateway.backend.calls.length, 1);
  assert.equal(
    gateway.worker.worker.jobCount,
    0,
    "the worker has forgotten it",
  );
}

for (const [how, lose] of Object.entries(LOSSES)) {
  Deno.test(`an edge that ${how} loses nothing of a kept answer: another one sends and settles it`, () =>
    outlivesItsEdge(lose));
}

Deno.test("DELETE stops a run whose edge is lost", async () => {
  await using gateway = await startKeeping({ workerSlower: 1 });
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one ");
  const response = await asking;
  await killFirstEdge(gateway);
  await response.body?.cancel();
  await waitFor(
    () => gateway.worker.worker.jobs.every(({ sender }) => sender.isFinished),
    { what: "the worker to miss the edge" },
  );
  assert.equal(call.abortedAtMs, null);
  const method = "DELETE";
  const gone = await getKept([gateway, key], idOf(response), { method });
  assert.equal(gone.status, 200);
  await gone.body?.cancel();
  await until(() => call.abortedAtMs !== null);
  await until(() => gateway.worker.worker.jobCount === 0);
});

Deno.test("when the worker is lost, what it had said is read with the error, and charged", async () => {
  await using gateway = await startKeeping({ slower: 1 });
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one ");
  const response = await asking;
  const reader = new EventReader(response);
  while (!reader.text.includes("one ")) await reader.next();
  const id = idOf(response);
  // Only what the log has can be read later.
  const second = new EventReader(await getKept([gateway, key], id));
  while (!second.text.includes("one ")) await second.next();
  await gateway.worker.kill();
  for (const each of [reader, second]) {
    const text = await each.rest();
    assert.equal(contentOf(text), "one ");
    assert.match(text, /"code":"worker_lost"[^\n]*\n\n$/);
  }
  await gateway.settled(key);
  const { requests, tokens } = await charged(gateway, key);
  assert.deepEqual({ requests, tokens }, { requests: 1, tokens: 1 });
});

Deno.test("without JetStream a request that wants to be kept gets 400, others are served", async () => {
  await using gateway = await startKeeping({ jetStream: false, onCall: hello });
  const key = await gateway.addKey();
  const refused = await askKept(gateway, key);
  assert.equal(refused.status, 400);
  assert.equal((await refused.json()).error.code, "keep_unavailable");
  assert.equal(gateway.edge.admissions, 0);
  const answer = await gateway.ask(key);
  assert.equal(answer.status, 200);
  await answer.body?.cancel();
});

Deno.test("where the operator has switched it off, the wish is ignored, which a header says", async () => {
  await using gateway = await startKeeping({ keeps: undefined, onCall: hello });
  const key = await gateway.addKey();
  const answer = await askKept(gateway, key);
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("x-gateway-keep"), "off");
  assert.equal(answer.headers.get("x-gateway-answer"), null);
  assert.doesNotMatch(await answer.text(), /^id: /m);
  const none = await getKept([gateway, key], `req_${"0".repeat(32)}`);
  assert.equal(none.status, 400);
  assert.equal((await none.json()).error.code, "keep_unavailable");
});

Deno.test("a log that is full ends the answer with an error", async () => {
  await using gateway = await startKeeping({ keeps: { stream: TINY } });
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("x".repeat(3_000));
  const reader = new EventReader(await asking);
  for (let size = 0; size < 3 && call.abortedAtMs === null; size += 1) {
    call.say("y".repeat(3_000));
    await reader.next();
  }
  await until(() => call.abortedAtMs !== null);
  assert.match(await reader.rest(), /"code":"keep_failed"/);
});

/** A log that is full after some kilobytes. */
const TINY = {
  storage: "memory",
  bytesMax: 8_000,
  ageMsMax: 60_000,
} as const;

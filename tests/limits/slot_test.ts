// Promise: a client with one slot may send its next request, to any edge, as soon as it
// has the end of the last answer, and is never refused because of that. Two events
// during an admission are not lost: that its client has left, and that its key was
// stopped.
import assert from "node:assert/strict";
import { subjects } from "@gateway/shared/bus/subjects";
import type { KeyOptions } from "../support/limits/admission_fixture.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { hello } from "../support/model_servers/scripted_model_server.ts";
import { startStopwatch, until } from "../support/wait_for.ts";

const REQUESTS = 100;
const FAILURES = 40;
/**
 * How much later than the second edge the first one reaches Redis: its settlement would
 * lose the race.
 */
const BEHIND_MS = 5;
const SLOW_REDIS_MS = 100;
/** For how long a request waits for its slot, see `admission.ts`. */
const SLOT_WAIT_MS = 100;

const LIMITS = { concurrency: 1 };
const CASES: { name: string; options: KeyOptions; requests: number }[] = [
  { name: "of the key", options: { limits: LIMITS }, requests: REQUESTS },
  {
    name: "of the owner",
    options: { ownerLimits: LIMITS },
    requests: REQUESTS,
  },
  { name: "after failures", options: { limits: LIMITS }, requests: FAILURES },
];

for (const { name, options, requests } of CASES) {
  Deno.test(`one slot ${name}: ${requests} requests in a row over two edges, none is refused`, async () => {
    const fails = requests === FAILURES;
    await using gateway = await startGateway("limited", {
      edges: 2,
      onCall: (call) => fails ? call.fail() : hello(call),
    });
    const key = await gateway.addKey(options);
    gateway.edge.proxy.set({ delayMs: BEHIND_MS });
    let waited = 0;
    for (let number = 0; number < requests; number += 1) {
      const stream = number % 4 < 2;
      using watch = startStopwatch();
      const ask = { edge: number % 2, body: { stream } };
      const response = await gateway.ask(key, ask);
      const answer = await response.text();
      assert.equal(response.status, fails ? 502 : 200, answer);
      const isDone = answer.endsWith("data: [DONE]\n\n");
      assert.equal(isDone, stream && !fails);
      if (watch.ms >= SLOT_WAIT_MS) waited += 1;
    }
    assert.ok(waited < requests / 2, `${waited} waited as long as any may`);
  });
}

Deno.test("no answer waits for a slow Redis, with or without a limit", async () => {
  await using gateway = await startGateway("limited", {
    onCall(call) {
      // The admission is over: from here on Redis is slow.
      gateway.proxy.set({ delayMs: SLOW_REDIS_MS });
      hello(call);
    },
  });
  const limited = await gateway.addKey({ limits: { concurrency: 1 } });
  const free = await gateway.addKey();
  const tookMs = async (key: typeof free) => {
    gateway.proxy.set({});
    await gateway.settled(key);
    using watch = startStopwatch();
    const response = await gateway.ask(key);
    assert.equal(response.status, 200);
    await response.text();
    return watch.ms;
  };
  await tookMs(free);
  const [freeMs, limitedMs] = [await tookMs(free), await tookMs(limited)];
  assert.ok(freeMs < SLOW_REDIS_MS, `without a limit ${freeMs} ms`);
  assert.ok(limitedMs < SLOW_REDIS_MS, `with a limit ${limitedMs} ms`);
});

const CALLS = 20;
/** The edge notices in a fifth of this that a client has left. */
const NOTICED_MS = 500;

/** A key that was served once, and from now on no answer of Redis arrives. */
async function startCutOff() {
  const gateway = await startGateway("limited");
  const key = await gateway.addKey({ limits: { concurrency: 1_000 } });
  assert.equal(await gateway.status(key), 200);
  await gateway.settled(key);
  gateway.proxy.set({ blackHole: "down" });
  return Object.assign(gateway, { key, ran: gateway.backend.calls.length });
}

Deno.test("a client that leaves while it is admitted gives its slot back and runs nothing", async () => {
  await using gateway = await startCutOff();
  const { key, ran } = gateway;
  const client = new AbortController();
  const asking = Array.from({ length: CALLS }, async () => {
    await assert.rejects(gateway.ask(key, { signal: client.signal }));
  });
  await until(async () => await gateway.leases(key) === CALLS);
  client.abort();
  await Promise.all(asking);
  gateway.proxy.set({ delayMs: NOTICED_MS });
  await gateway.settled(key);
  assert.equal(gateway.backend.calls.length, ran);
  assert.equal(await gateway.status(key), 200);
});

Deno.test("a notice to stop that overtakes the answer of Redis holds", async () => {
  await using gateway = await startCutOff();
  const { key, ran } = gateway;
  const asking = gateway.ask(key);
  await until(async () => await gateway.leases(key) === 1);
  const notice = JSON.stringify({ keyId: key.keyId, action: "stop" });
  const bytes = new TextEncoder().encode(notice);
  gateway.edge.link.publish(subjects.keyChanged, bytes);
  await gateway.edge.link.flush();
  gateway.proxy.set({});
  const response = await asking;
  const { error } = await response.json();
  assert.equal(response.status, 403);
  assert.equal(error.code, "key_revoked");
  assert.equal(gateway.backend.calls.length, ran);
  await gateway.settled(key);
});

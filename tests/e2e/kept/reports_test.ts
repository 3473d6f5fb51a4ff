// Public reports of others about resuming streams and about idempotency keys, replayed
// here: each test is named after what was seen to go wrong, and says where.
import assert from "node:assert/strict";
import {
  hello,
  type ScriptedCall,
} from "../../support/model_servers/scripted_model_server.ts";
import { until } from "../../support/wait_for.ts";
import {
  askKept,
  contentOf,
  EventReader,
  getKept,
  idOf,
  startKeeping,
} from "./kept_rig.ts";

/** The first call, once it has said something. */
async function callSaying(
  calls: readonly ScriptedCall[],
  text: string,
): Promise<ScriptedCall> {
  const call = await until(() => calls[0]);
  call.say(text);
  return call;
}

// NVIDIA-AI-Blueprints/aiq 272
Deno.test("an event that is no part of the answer has no id, so no later one is skipped", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await callSaying(gateway.backend.calls, "one ");
  const first = await asking;
  const id = idOf(first);
  await first.body?.cancel();
  const beyond = new EventReader(
    await getKept([gateway, key], `${id}?after=9`),
  );
  call.say("two ");
  call.end(2);
  const error = await beyond.rest();
  assert.match(error, /"code":"invalid_value"/);
  assert.doesNotMatch(error, /^id:/m);
  const whole = await (await getKept([gateway, key], id)).text();
  const ends = whole.split("\n\n").filter((each) => !/^id: \d+$/m.test(each));
  assert.deepEqual(ends, ["data: [DONE]", ""]);
});

// modelcontextprotocol/typescript-sdk 2499, HAYDEN-OAI in openai-node 2671
Deno.test("who is cut again before the next event reads on from the same id", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await callSaying(gateway.backend.calls, "one ");
  const response = await asking;
  const id = idOf(response);
  const first = new EventReader(response);
  while (!first.text.includes("one ")) await first.next();
  await first.cut();
  const headers = { "last-event-id": first.lastId };
  for (const edge of [1, 0, 1]) {
    const again = await getKept([gateway, key], id, { edge, headers });
    assert.equal(again.status, 200);
    await again.body?.cancel();
  }
  call.say("two ");
  call.end(2);
  const rest = await getKept([gateway, key], id, { headers });
  assert.equal(contentOf(first.text + await rest.text()), "one two ");
});

// openai-python 2828
Deno.test("an answer that runs for longer than it is kept can be read on all the time", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key, { keep: "1" });
  const call = await callSaying(gateway.backend.calls, "one ");
  const begunAtMs = performance.now();
  const first = await asking;
  const id = idOf(first);
  await first.body?.cancel();
  await until(() => performance.now() - begunAtMs > 2_000);
  const late = new EventReader(await getKept([gateway, key], id));
  call.say("two ");
  call.end(2);
  assert.equal(contentOf(await late.rest()), "one two ");
});

// vercel/chatbot 986
Deno.test("who reads on as the stream ends gets the end, not silence", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await callSaying(gateway.backend.calls, "one ");
  const reader = new EventReader(await asking);
  const id = await asking.then(idOf);
  while (!reader.text.includes("one ")) await reader.next();
  const { lastId } = reader;
  const reading = Array.from(
    { length: 8 },
    (_, at) =>
      getKept([gateway, key], `${id}?after=${lastId}`, { edge: at % 2 }),
  );
  call.end(1);
  for (const each of await Promise.all(reading)) {
    assert.match(await each.text(), /data: \[DONE\]\n\n$/);
  }
  const text = await reader.rest();
  const after = reader.lastId;
  const none = await getKept([gateway, key], `${id}?after=${after}`);
  assert.equal(none.status, 200);
  assert.equal(await none.text(), "data: [DONE]\n\n");
  assert.match(text, /\[DONE\]/);
});

// pathosDev/actor-ts 984
Deno.test("a request that was refused before it ran does not hold its idempotency key", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey({ limits: { concurrency: 1 } });
  const headers = { "idempotency-key": "k" };
  const wrong = await askKept(gateway, key, {
    headers,
    body: { temperature: 9 },
  });
  assert.equal(wrong.status, 400);
  await wrong.body?.cancel();
  const right = await askKept(gateway, key, { headers });
  assert.equal(right.status, 200);
  assert.equal(contentOf(await right.text()), "Hello");
});

// pathosDev/actor-ts 984
Deno.test("a request that was refused for a limit runs with the same key once there is room", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey({ limits: { concurrency: 1 } });
  const asking = askKept(gateway, key);
  const call = await callSaying(gateway.backend.calls, "one ");
  const first = await asking;
  const headers = { "idempotency-key": "k" };
  const refused = await askKept(gateway, key, { headers });
  assert.equal(refused.status, 429);
  await refused.body?.cancel();
  call.end(1);
  await first.text();
  await gateway.settled(key);
  const again = askKept(gateway, key, { headers });
  hello(await until(() => gateway.backend.calls[1]));
  const answer = await again;
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("idempotent-replayed"), null);
  assert.equal(contentOf(await answer.text()), "Hello");
});

// KeeperHub/keeperhub 1849
Deno.test("a failure that is sent again says that it is no new one", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const headers = { "idempotency-key": "k" };
  const asking = askKept(gateway, key, { headers });
  const call = await callSaying(gateway.backend.calls, "one ");
  const response = await asking;
  call.fail();
  const first = await response.text();
  assert.match(first, /"error":/);
  const again = await askKept(gateway, key, { headers, edge: 1 });
  assert.equal(again.headers.get("idempotent-replayed"), "true");
  const text = await again.text();
  assert.equal(contentOf(text), "one ");
  assert.match(text, /"error":/);
  assert.equal(gateway.backend.calls.length, 1);
});

// Augustas11/macprovider 200
Deno.test("a request that is sent again reserves nothing, also where its key has no room", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey({
    limits: { concurrency: 1, requestsPerMinute: 1 },
  });
  const headers = { "idempotency-key": "k" };
  const asking = askKept(gateway, key, { headers });
  const call = await callSaying(gateway.backend.calls, "one ");
  const first = await asking;
  const again = await askKept(gateway, key, { headers, edge: 1 });
  assert.equal(again.status, 200);
  assert.equal(await gateway.leases(key), 1);
  call.end(1);
  assert.equal(contentOf(await again.text()), "one ");
  assert.equal(contentOf(await first.text()), "one ");
  await gateway.settled(key);
  const late = await askKept(gateway, key, { headers });
  assert.equal(contentOf(await late.text()), "one ");
  const admitted = gateway.edges.map(({ admissions }) => admissions);
  assert.deepEqual(admitted.sort(), [0, 1]);
});

// ayush-rudani/LLMio 8
Deno.test("answers that are read on together have nothing of each other", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const names = ["a", "b", "c"];
  const ids: string[] = [];
  for (const [at, name] of names.entries()) {
    const asking = askKept(gateway, key);
    const call = await until(() => gateway.backend.calls[at]);
    call.say(`${name}1 `);
    const response = await asking;
    ids.push(idOf(response));
    await response.body?.cancel();
  }
  const readers = await Promise.all(
    ids.map(async (id, edge) =>
      new EventReader(await getKept([gateway, key], id, { edge: edge % 2 }))
    ),
  );
  for (const [at, call] of gateway.backend.calls.entries()) {
    call.say(`${names[at]}2 `);
    call.end(2);
  }
  const texts = await Promise.all(readers.map((each) => each.rest()));
  assert.deepEqual(texts.map(contentOf), ["a1 a2 ", "b1 b2 ", "c1 c2 "]);
});

// Azure/azure-sdk-for-net 62430: an empty id clears what the client knows.
Deno.test("a client that knows no id any more, and says so, reads from the beginning", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey();
  const response = await askKept(gateway, key);
  const whole = await response.text();
  const again = await getKept([gateway, key], idOf(response), {
    headers: { "last-event-id": "" },
  });
  assert.equal(again.status, 200);
  assert.equal(await again.text(), whole);
});

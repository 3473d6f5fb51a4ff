// Promises: a kept answer survives its client; any edge sends it on from any event;
// whoever asks again gets it, and it runs and costs once; nobody else sees it.
import assert from "node:assert/strict";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import type { TestKey } from "../../support/gateway/limited.ts";
import { readStatus } from "../../support/gateway/chat_status.ts";
import { hello } from "../../support/model_servers/scripted_model_server.ts";
import { until } from "../../support/wait_for.ts";
import {
  askKept,
  contentOf,
  EventReader,
  getKept,
  idOf,
  startKeeping,
} from "./kept_rig.ts";

Deno.test("a kept stream goes on without its client, and another edge sends the rest", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one ", "two ");
  const response = await asking;
  assert.equal(response.headers.get("x-gateway-keep"), "60");
  const first = new EventReader(response);
  while (!first.text.includes("one ")) await first.next();
  await first.cut();
  await until(() => gateway.edge.dispatcher.running === 1);
  call.say("three ");
  const resumed = await getKept([gateway, key], idOf(response), {
    headers: { "last-event-id": first.lastId },
  });
  const rest = new EventReader(resumed);
  while (!rest.text.includes("three ")) await rest.next();
  assert.equal(call.abortedAtMs, null, "it was stopped");
  call.say("four");
  call.end(4);
  const text = first.text + await rest.rest();
  assert.equal(contentOf(text), "one two three four");
  const ids = [...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
  assert.deepEqual(ids, ids.map((_, index) => index + 1), "every event once");
  assert.match(text, /data: \[DONE\]\n\n$/);
  await gateway.settled(key);
  assert.equal(gateway.backend.calls.length, 1);
});

Deno.test("a stream that is cut ten times arrives whole", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("0 ");
  let response = await asking;
  const id = idOf(response);
  let text = "";
  let after = "0";
  for (let cut = 1; cut <= 10; cut += 1) {
    const reader = new EventReader(response);
    while (!reader.text.includes(`"${cut - 1} "`)) await reader.next();
    text += reader.text;
    after = reader.lastId === "0" ? after : reader.lastId;
    await reader.cut();
    call.say(`${cut} `);
    response = await getKept([gateway, key], `${id}?after=${after}`, {
      edge: cut % 2,
    });
  }
  call.end(11);
  text += await new EventReader(response).rest();
  assert.equal(contentOf(text), "0 1 2 3 4 5 6 7 8 9 10 ");
  // As if it had never been cut.
  const whole = await (await getKept([gateway, key], id)).text();
  assert.equal(text, whole.replaceAll(/^:.*\n+/gm, ""));
  assert.equal(gateway.backend.calls.length, 1);
});

Deno.test("a request that is sent again at the same moment to another edge runs once", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const headers = { "idempotency-key": "order-7" };
  const both = [0, 1].map((edge) => askKept(gateway, key, { edge, headers }));
  const call = await until(() => gateway.backend.calls[0]);
  call.say("once");
  call.end(1);
  const answers = await Promise.all(both);
  const texts = await Promise.all(answers.map((each) => each.text()));
  assert.equal(texts[0], texts[1]);
  assert.equal(contentOf(texts[0] ?? ""), "once");
  const replayed = answers.map(({ headers }) =>
    headers.get("idempotent-replayed")
  );
  assert.deepEqual(replayed.sort(), ["true", null].sort());
  await gateway.settled(key);
  // Later, too; but not with another body, and not for another key.
  const later = await askKept(gateway, key, { headers });
  assert.equal(await later.text(), texts[0]);
  const other = await askKept(gateway, key, { headers, body: { n: 2 } });
  assert.equal(other.status, 422);
  assert.equal((await other.json()).error.code, "idempotency_mismatch");
  assert.equal(gateway.backend.calls.length, 1);
  const admitted = gateway.edges.map(({ admissions }) => admissions);
  assert.deepEqual(admitted.sort(), [0, 1], "it took a place once");
});

Deno.test("a whole answer is kept, too, and its state and usage are told", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey();
  const headers = { "idempotency-key": "k" };
  const body = { stream: false };
  const first = await askKept(gateway, key, { headers, body });
  const text = await first.text();
  const id = idOf(first);
  const again = await askKept(gateway, key, { headers, body, edge: 1 });
  assert.equal(await again.text(), text);
  assert.equal(await (await getKept([gateway, key], id)).text(), text);
  // Media types have no case, and may have parameters.
  const accept = "Application/JSON; charset=utf-8";
  const readState = async () =>
    await (await getKept([gateway, key], id, { headers: { accept } })).json();
  await until(async () => (await readState()).state === "complete");
  const { usage, ...state } = await readState();
  assert.equal(usage.completion_tokens, 1);
  assert.equal(state.id, id);
  assert.equal(state.error, null);
  const after = await getKept([gateway, key], `${id}?after=1`);
  assert.equal(after.status, 400);
  await after.body?.cancel();
  assert.equal(gateway.backend.calls.length, 1);
});

Deno.test("what fails before its first token is not remembered", async () => {
  await using gateway = await startKeeping({
    onCall: (call) => failed++ === 0 ? call.fail() : hello(call),
  });
  let failed = 0;
  const key = await gateway.addKey();
  const headers = { "idempotency-key": "again" };
  const refused = await askKept(gateway, key, { headers });
  assert.equal(refused.status, 502);
  await refused.body?.cancel();
  await gateway.settled(key);
  const text = await until(async () => {
    const answer = await askKept(gateway, key, { headers });
    const text = await answer.text();
    return answer.status === 200 && text;
  });
  assert.equal(contentOf(text), "Hello");
});

Deno.test("API1: an answer is an unknown one for other accounts and keys without its model", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey();
  const stranger = await gateway.addKey();
  const answer = await askKept(gateway, key);
  await answer.text();
  const id = idOf(answer);
  const sameAccount = { owner: key.ownerId };
  const others: TestKey[] = [
    stranger,
    await gateway.addKey({ ...sameAccount, models: "another" }),
    await gateway.addKey({ ...sameAccount, scopes: "image" }),
  ];
  for (const other of others) {
    for (const method of ["GET", "DELETE"]) {
      const reply = await getKept([gateway, other], id, { method });
      assert.equal(reply.status, 404, method);
      assert.equal((await reply.json()).error.code, "answer_not_found");
    }
  }
  const friend = await gateway.addKey(sameAccount);
  const shown = await getKept([gateway, friend], id);
  assert.equal(contentOf(await shown.text()), "Hello");
});

Deno.test("DELETE stops a run, and leaves nothing of its answer", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("secret");
  const response = await asking;
  const id = idOf(response);
  const reader = new EventReader(response);
  while (!reader.text.includes("secret")) await reader.next();
  const gone = await getKept([gateway, key], id, { method: "DELETE" });
  assert.equal((await gone.json()).deleted, true);
  await until(() => call.abortedAtMs !== null);
  assert.match(await reader.rest(), /"request_stopped"/);
  for (const method of ["GET", "DELETE"]) {
    assert.equal(
      await readStatus(getKept([gateway, key], id, { method })),
      404,
    );
  }
  await gateway.settled(key);
  const names = await gateway.world.command("KEYS", "kept:*:req*");
  assert.deepEqual(names, []);
});

Deno.test("malformed wishes and ids are refused, each with its reason", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey();
  const wishes: Record<string, string>[] = [
    { "x-gateway-keep": "-1" },
    { "x-gateway-keep": "3601" },
    { "x-gateway-keep": "soon" },
    { "x-gateway-keep": "1.5" },
    { "idempotency-key": "k".repeat(256) },
    { "idempotency-key": "ü" },
  ];
  for (const headers of wishes) {
    const answer = await askKept(gateway, key, { headers });
    assert.equal(answer.status, 400, JSON.stringify(headers));
    const { error } = await answer.json();
    assert.match(error.message, /Invalid header '(X-Gateway-Keep|Idemp)/);
  }
  const longest = { "idempotency-key": "k".repeat(255) };
  const kept = await askKept(gateway, key, { headers: longest });
  assert.match(await kept.text(), /DONE/);
  const id = idOf(kept);
  const ends: { path: string; event?: string; status: number }[] = [
    { path: `${id}?after=1000`, status: 400 },
    { path: `${id}?after=-1`, status: 400 },
    { path: id, event: "x", status: 400 },
    { path: "req_0", status: 404 },
    { path: `req_${"0".repeat(32)}`, status: 404 },
    { path: id, status: 200 },
  ];
  for (const { path, event, status } of ends) {
    const headers = event === undefined ? {} : { "last-event-id": event };
    const reply = await getKept([gateway, key], path, { headers });
    assert.equal(reply.status, status, `${path} ${event}`);
    await reply.body?.cancel();
  }
});

Deno.test("an account that keeps as much as it may gets 429, and is told what to do", async () => {
  const keeps = { accountBytesMax: KEPT_LIMITS.reservedBytes };
  await using gateway = await startKeeping({ keeps });
  const key = await gateway.addKey();
  const first = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one");
  const id = idOf(await first);
  const full = await askKept(gateway, key);
  assert.equal(full.status, 429);
  assert.equal((await full.json()).error.code, "keep_full");
  const method = "DELETE";
  const gone = await getKept([gateway, key], id, { method });
  assert.equal(await readStatus(gone), 200);
  await (await first).body?.cancel();
  const next = askKept(gateway, key);
  const other = await until(() => gateway.backend.calls[1]);
  other.say("two");
  other.end();
  assert.equal(contentOf(await (await next).text()), "two");
});

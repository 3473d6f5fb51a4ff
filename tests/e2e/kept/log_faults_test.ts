// Promises: whatever becomes of the log of answers, full, away or empty again, each
// request and each reader gets the answer or a clear error, requests that ask for
// nothing are served, and nobody reads the text of another account.
import assert from "node:assert/strict";
import type { LimitedGateway, TestKey } from "../../support/gateway/limited.ts";
import {
  hello,
  type ScriptedCall,
} from "../../support/model_servers/scripted_model_server.ts";
import { until, waitFor } from "../../support/wait_for.ts";
import {
  askKept,
  contentOf,
  EventReader,
  getKept,
  idOf,
  type KeptAsk,
  startKeeping,
} from "./kept_rig.ts";

/** A log fails for good after ten seconds, and a busy machine is slow. */
const PATIENT_MS = 60_000;
const NO_JETSTREAM = "jetstream: disabled\n";

/** A key of its own account, whose request has said "one " and goes on. */
async function beginStream(gateway: LimitedGateway) {
  const key = await gateway.addKey();
  const count = gateway.backend.calls.length;
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[count]);
  call.say("one ");
  const response = await asking;
  const id = idOf(response);
  const own = new EventReader(response);
  const other = new EventReader(await getKept([gateway, key], id));
  for (const reader of [own, other]) {
    while (!reader.text.includes("one ")) await reader.next();
  }
  return { key, call, id, readers: [own, other] };
}

/** The code of the error of a request for an answer, which has no text. */
async function errorOf(response: Response, text: RegExp): Promise<string> {
  const body = await response.text();
  assert.doesNotMatch(body, text);
  const code = /"code":"(\w+)"/.exec(body)?.[1];
  return code ?? assert.fail(`no error: ${response.status} ${body}`);
}

/** Waits until answers can be kept again, and keeps one. */
function askUntilKept(
  gateway: LimitedGateway,
  key: TestKey,
  ask: KeptAsk = {},
): Promise<Response> {
  return waitFor(async () => {
    const answer = await askKept(gateway, key, ask);
    if (answer.status === 200) return answer;
    assert.match(await errorOf(answer, /Hello/), /^keep_(failed|unavailable)$/);
    return undefined;
  }, { what: "answers to be kept again", timeoutMs: PATIENT_MS });
}

/** Says hello at once, unless the test wants to say something itself. */
const helloUnless = (isScripted: () => boolean) => (call: ScriptedCall) =>
  isScripted() ? undefined : hello(call);

Deno.test("a log that loses everything ends what runs with an error, for each of its readers", async () => {
  let isScripted = true;
  await using gateway = await startKeeping({
    onCall: helloUnless(() => isScripted),
  });
  const { key, call, id, readers } = await beginStream(gateway);
  isScripted = false;
  await gateway.nats.restart();
  call.say("two ");
  for (const reader of readers) {
    const text = await reader.rest();
    assert.ok("one two ".startsWith(contentOf(text)), text);
    assert.match(text, /"code":"keep_failed"[^\n]*\n\n$/);
  }
  await until(() => call.abortedAtMs !== null);
  await gateway.settled(key);
  assert.equal(gateway.backend.calls.length, 1);
  // Others write where it was; it stays an error for its own account, and nothing for
  // them.
  const stranger = await gateway.addKey();
  const next = await askUntilKept(gateway, stranger);
  assert.equal(contentOf(await next.text()), "Hello");
  const lost = await getKept([gateway, key], id);
  assert.equal(await errorOf(lost, /Hello|one/), "keep_failed");
  const foreign = await getKept([gateway, stranger], id);
  assert.equal(await errorOf(foreign, /Hello|one/), "answer_not_found");
  const own = await getKept([gateway, stranger], idOf(next));
  assert.equal(contentOf(await own.text()), "Hello");
});

Deno.test("an answer that the log has lost before it was read is an error, at once and each time", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey();
  const ids: string[] = [];
  for (const stream of [true, false]) {
    const headers = { "idempotency-key": `once ${stream}` };
    const answer = await askKept(gateway, key, { headers, body: { stream } });
    assert.match(await answer.text(), /Hello/);
    ids.push(idOf(answer));
  }
  await gateway.settled(key);
  await gateway.nats.restart();
  const stranger = await gateway.addKey();
  await (await askUntilKept(gateway, stranger)).text();
  const startedAtMs = performance.now();
  const { length } = gateway.backend.calls;
  for (const id of [...ids, ...ids]) {
    const lost = await getKept([gateway, key], id);
    assert.equal(await errorOf(lost, /Hello/), "keep_failed");
  }
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs < PATIENT_MS, `${tookMs} ms`);
  const accept = "application/json";
  const state = await getKept([gateway, key], ids[0] ?? "", {
    headers: { accept },
  });
  const { state: word, usage } = await state.json();
  assert.deepEqual([word, usage.completion_tokens], ["complete", 1]);
  assert.equal(gateway.backend.calls.length, length);
  await runsAgainOnce(gateway, key);
});

/** A request whose answer the log has lost is sent again: it runs anew, once. */
async function runsAgainOnce(
  gateway: LimitedGateway,
  key: TestKey,
): Promise<void> {
  const { length } = gateway.backend.calls;
  const headers = { "idempotency-key": "once true" };
  const both = await Promise.all(
    [0, 1].map((edge) => askKept(gateway, key, { edge, headers })),
  );
  for (const answer of both) {
    assert.equal(contentOf(await answer.text()), "Hello");
  }
  assert.equal(new Set(both.map(idOf)).size, 1);
  const replayed = both.map((each) => each.headers.get("idempotent-replayed"));
  assert.deepEqual(replayed.sort(), ["true", null].sort());
  assert.equal(gateway.backend.calls.length, length + 1);
}

Deno.test("a request whose answer the log has lost runs anew once its first run has ended, not before", async () => {
  let wasRunning = false;
  await using gateway = await startKeeping({
    onCall: (call) => {
      const [first] = gateway.backend.calls;
      if (first === undefined || first === call) return;
      wasRunning ||= first.abortedAtMs === null;
      hello(call);
    },
  });
  const key = await gateway.addKey();
  const ask = { headers: { "idempotency-key": "once" } };
  const asking = askKept(gateway, key, ask);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one ");
  const first = await asking;
  const reader = new EventReader(first);
  // The log has it, not only the client.
  const other = new EventReader(await getKept([gateway, key], idOf(first)));
  for (const each of [reader, other]) {
    while (!each.text.includes("one ")) await each.next();
  }
  await other.cut();
  await gateway.nats.restart();
  // Its worker finds out what the log has lost when it appends.
  call.say("two ");
  const again = await waitFor(async () => {
    const answer = await askKept(gateway, key, ask);
    const text = await answer.text();
    if (contentOf(text) === "Hello") return answer;
    // One that attaches to the first run ends with it.
    assert.match(text, /"code":"keep_(failed|unavailable)"/);
    return undefined;
  }, { what: "the request to run anew", timeoutMs: PATIENT_MS });
  assert.notEqual(idOf(again), idOf(first));
  assert.match(await reader.rest(), /"code":"keep_failed"/);
  assert.equal(wasRunning, false, "two runs at a time");
  assert.equal(gateway.backend.calls.length, 2);
});

/** A log whose entries are on a disk. */
const ON_DISK = {
  storage: "file",
  bytesMax: 64 * 1_024 ** 2,
  ageMsMax: 600_000,
} as const;

Deno.test("a log that is restarted with its disk goes on: the answer is whole", async () => {
  await using gateway = await startKeeping({ keeps: { stream: ON_DISK } });
  const { key, call, id, readers } = await beginStream(gateway);
  await gateway.nats.restart();
  call.say("two ");
  for (const reader of readers) {
    while (!reader.text.includes("two ")) await reader.next();
  }
  call.end(2);
  for (const reader of readers) {
    assert.equal(contentOf(await reader.rest()), "one two ");
  }
  await gateway.nats.restart();
  const later = await getKept([gateway, key], id);
  assert.equal(contentOf(await later.text()), "one two ");
});

Deno.test("a log that stays away ends answers that run, and begins none; other requests are served", async () => {
  let isScripted = true;
  // The worker gives the log up after ten seconds.
  await using gateway = await startKeeping({
    workerSlower: 1,
    keeps: { stream: ON_DISK },
    onCall: helloUnless(() => isScripted),
  });
  const { key, call, readers } = await beginStream(gateway);
  isScripted = false;
  await gateway.nats.reload(NO_JETSTREAM);
  call.say("two ");
  // Its text may have come before the log was given up: then the error follows.
  const refused = await askKept(gateway, key);
  assert.match(await refused.text(), /"code":"keep_(failed|unavailable)"/);
  for (const reader of readers) {
    const text = await reader.rest();
    assert.ok("one two ".startsWith(contentOf(text)), text);
    assert.match(text, /"code":"keep_failed"[^\n]*\n\n$/);
  }
  await until(() => call.abortedAtMs !== null);
  const plain = await gateway.ask(key);
  assert.match(await plain.text(), /Hello/);
  const byDefault = await gateway.addKey({ keepSeconds: 60 });
  const unkept = await waitFor(async () => {
    const answer = await askKept(gateway, byDefault, { keep: null });
    const text = await answer.text();
    const isOff = answer.headers.get("x-gateway-keep") === "off";
    return isOff && text;
  }, { what: "edges to notice it", timeoutMs: PATIENT_MS });
  assert.equal(contentOf(unkept), "Hello");
  await gateway.nats.reload("");
  // A server of version 2.9 finds its streams again only when it starts.
  await gateway.nats.restart();
  assert.match(await (await askUntilKept(gateway, key)).text(), /Hello/);
});

/** Room for one answer of {@link LONG}. */
const TINY = { storage: "memory", bytesMax: 8_000, ageMsMax: 60_000 } as const;
const LONG = "x".repeat(5_000);

Deno.test("a full log begins no answer, still has what it kept, and has room after DELETE", async () => {
  await using gateway = await startKeeping({
    keeps: { stream: TINY },
    onCall: (call) => {
      call.say(LONG);
      call.end();
    },
  });
  const key = await gateway.addKey();
  const first = await askKept(gateway, key);
  assert.equal(contentOf(await first.text()), LONG);
  const headers = { "idempotency-key": "a" };
  const stranger = await gateway.addKey();
  const full = await askKept(gateway, stranger, { headers });
  assert.match(await full.text(), /"code":"keep_failed"/);
  const kept = await getKept([gateway, key], idOf(first));
  assert.equal(contentOf(await kept.text()), LONG);
  const method = "DELETE";
  for (const [owner, answer] of [[key, first], [stranger, full]] as const) {
    const id = answer.headers.get("x-gateway-answer");
    if (id === null) continue;
    const gone = await getKept([gateway, owner], id, { method });
    assert.equal(gone.status, 200);
    await gone.body?.cancel();
  }
  const again = await askKept(gateway, stranger);
  assert.equal(contentOf(await again.text()), LONG);
});

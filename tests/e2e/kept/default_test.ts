// Promises: a key may have it as a default that its answers are kept; a request says
// otherwise for itself; and where nothing can be kept, such a request is served all the
// same, and a header says so.
import assert from "node:assert/strict";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
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

const KEEP_SECONDS = 90;

Deno.test("answers of a key with that default are kept without a header, and charged once", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey({ keepSeconds: KEEP_SECONDS });
  const asking = askKept(gateway, key, { keep: null });
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one ");
  const response = await asking;
  assert.equal(response.headers.get("x-gateway-keep"), `${KEEP_SECONDS}`);
  const first = new EventReader(response);
  while (!first.text.includes("one ")) await first.next();
  await first.cut();
  const rest = new EventReader(
    await getKept([gateway, key], `${idOf(response)}?after=${first.lastId}`),
  );
  call.say("two");
  call.end(2);
  assert.equal(contentOf(first.text + await rest.rest()), "one two");
  assert.equal(call.abortedAtMs, null, "it was stopped");
  await gateway.settled(key);
  const accept = "application/json";
  const state = await getKept([gateway, key], idOf(response), {
    headers: { accept },
  });
  assert.equal((await state.json()).keep_seconds, KEEP_SECONDS);
  const { admissions } = gateway.edge;
  assert.deepEqual([admissions, gateway.backend.calls.length], [1, 1]);
});

/** What a request says, and for how long its answer is kept. */
const WISHES: readonly {
  keep: string | null;
  once?: string;
  keyKeeps?: number;
  keeps: number | null;
}[] = [
  { keep: null, keeps: KEEP_SECONDS },
  { keep: "0", keeps: null },
  { keep: "7", keeps: 7 },
  { keep: null, once: "a", keeps: KEEP_SECONDS },
  { keep: "8", once: "b", keeps: 8 },
  { keep: null, keyKeeps: 0, keeps: null },
  { keep: "0", keyKeeps: 0, keeps: null },
  { keep: null, once: "c", keyKeeps: 0, keeps: KEPT_LIMITS.secondsDefault },
];

Deno.test("what a request says about being kept wins over the default of its key", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  for (const { keep, once, keyKeeps = KEEP_SECONDS, keeps } of WISHES) {
    const key = await gateway.addKey({ keepSeconds: keyKeeps });
    const headers = once === undefined ? {} : { "idempotency-key": once };
    const answer = await askKept(gateway, key, { keep, headers });
    const text = await answer.text();
    const what = `${keep} ${once} ${keyKeeps}`;
    const header = answer.headers.get("x-gateway-keep");
    assert.equal(header, keeps === null ? null : `${keeps}`, what);
    assert.equal(/^id: /m.test(text), keeps !== null, what);
    assert.equal(contentOf(text), "Hello");
    if (keeps === null) {
      assert.equal(answer.headers.get("x-gateway-answer"), null, what);
      continue;
    }
    const state = await getKept([gateway, key], idOf(answer), {
      headers: { accept: "application/json" },
    });
    assert.equal((await state.json()).keep_seconds, keeps, what);
  }
});

Deno.test("with X-Gateway-Keep: 0, the run of such a key ends with its client", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey({ keepSeconds: KEEP_SECONDS });
  const asking = askKept(gateway, key, { keep: "0" });
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one");
  await (await asking).body?.cancel();
  await until(() => call.abortedAtMs !== null);
});

Deno.test("the same request may not forbid to keep its answer and need it", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey();
  const headers = { "idempotency-key": "a" };
  const answer = await askKept(gateway, key, { keep: "0", headers });
  assert.equal(answer.status, 400);
  const { error } = await answer.json();
  assert.match(error.message, /'Idempotency-Key' needs it/);
});

/** Where a request of such a key is served without its answer being kept. */
const UNKEPT: Record<string, Parameters<typeof startKeeping>[0]> = {
  "the operator has switched it off": { keeps: undefined },
  "NATS has no JetStream": { jetStream: false },
  "the account keeps as much as it may": { keeps: { accountBytesMax: 0 } },
};

for (const [where, options] of Object.entries(UNKEPT)) {
  Deno.test(`where ${where}, a key's default is ignored, which a header says`, async () => {
    await using gateway = await startKeeping({ ...options, onCall: hello });
    const key = await gateway.addKey({ keepSeconds: KEEP_SECONDS });
    for (const stream of [true, false]) {
      const answer = await askKept(gateway, key, {
        keep: null,
        body: { stream },
      });
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get("x-gateway-keep"), "off");
      assert.equal(answer.headers.get("x-gateway-answer"), null);
      assert.match(await answer.text(), /Hello/);
    }
    await gateway.settled(key);
  });
}

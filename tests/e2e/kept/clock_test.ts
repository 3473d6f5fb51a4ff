// Promise: a clock that is wrong, or jumps, makes an answer expire sooner or later, and
// does nothing else. A test cannot set the clock of a server: it moves what Redis has
// stored the other way instead.
import assert from "node:assert/strict";
import type { LimitedGateway } from "../../support/gateway/limited.ts";
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

const DAY_MS = 86_400_000;

/** Moves the clock of Redis, as far as kept answers are concerned. */
async function moveClock({ world }: LimitedGateway, ms: number): Promise<void> {
  const names = await world.command("KEYS", "kept:*");
  for (const name of Array.isArray(names) ? names.map(String) : []) {
    const leftMs = Number(await world.command("PTTL", name));
    if (leftMs > 0) await world.command("PEXPIRE", name, `${leftMs - ms}`);
    if (await world.command("TYPE", name) !== "zset") continue;
    const scores = await world.command("ZRANGE", name, "0", "-1", "WITHSCORES");
    const list = Array.isArray(scores) ? scores.map(String) : [];
    for (let at = 0; at < list.length; at += 2) {
      const score = Number(list[at + 1]) - ms;
      await world.command("ZADD", name, `${score}`, list[at] ?? "");
    }
  }
}

for (const days of [-1, 1]) {
  Deno.test(`an edge whose clock is wrong by ${days} day keeps answers for as long as others`, async () => {
    await using gateway = await startKeeping({
      onCall: hello,
      wallNow: () => Date.now() + days * DAY_MS,
    });
    const key = await gateway.addKey();
    const headers = { "idempotency-key": "a" };
    const answer = await askKept(gateway, key, { keep: "2", headers });
    await answer.text();
    const again = await askKept(gateway, key, { keep: "2", headers, edge: 1 });
    assert.equal(again.headers.get("idempotent-replayed"), "true");
    assert.equal(contentOf(await again.text()), "Hello");
    const status = () => getKept([gateway, key], idOf(answer)).then(statusOf);
    assert.equal(await status(), 200);
    await until(async () => await status() === 404);
    assert.equal(gateway.backend.calls.length, 1);
  });
}

const statusOf = async ({ status, body }: Response): Promise<number> => {
  await body?.cancel();
  return status;
};

Deno.test("while Redis' clock jumps ahead, an answer goes on for its client, and is then unknown", async () => {
  await using gateway = await startKeeping();
  const key = await gateway.addKey();
  const asking = askKept(gateway, key);
  const call = await until(() => gateway.backend.calls[0]);
  call.say("one ");
  const response = await asking;
  const reader = new EventReader(response);
  while (!reader.text.includes("one ")) await reader.next();
  const id = idOf(response);
  await moveClock(gateway, DAY_MS);
  assert.equal(await getKept([gateway, key], id).then(statusOf), 404);
  call.say("two");
  call.end(2);
  assert.equal(contentOf(await reader.rest()), "one two");
  await gateway.settled(key);
  assert.equal(await getKept([gateway, key], id).then(statusOf), 404);
  // The account has its room again, and the next one is kept as always.
  const next = askKept(gateway, key);
  const other = await until(() => gateway.backend.calls[1]);
  other.say("three");
  other.end();
  const kept = await next;
  assert.equal(contentOf(await kept.text()), "three");
  const read = await getKept([gateway, key], idOf(kept));
  assert.equal(contentOf(await read.text()), "three");
});

Deno.test("after Redis' clock was set back, answers are read and repeated as before", async () => {
  await using gateway = await startKeeping({ onCall: hello });
  const key = await gateway.addKey();
  const headers = { "idempotency-key": "a" };
  const answer = await askKept(gateway, key, { headers });
  await answer.text();
  await gateway.settled(key);
  await moveClock(gateway, -DAY_MS);
  const read = await getKept([gateway, key], idOf(answer));
  assert.equal(contentOf(await read.text()), "Hello");
  const again = await askKept(gateway, key, { headers });
  assert.equal(contentOf(await again.text()), "Hello");
  const method = "DELETE";
  const gone = await getKept([gateway, key], idOf(answer), { method });
  assert.equal(await statusOf(gone), 200);
  const after = await askKept(gateway, key, { headers });
  assert.equal(contentOf(await after.text()), "Hello");
  assert.equal(gateway.backend.calls.length, 2);
});

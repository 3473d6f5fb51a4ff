// The records of kept answers on a real Redis: one run for an idempotency key whoever
// asks at the same moment, bounds per account, and nothing that is left behind.
import assert from "node:assert/strict";
import { startRedisWorld } from "../../../tests/support/limits/admission_fixture.ts";
import { until } from "../../../tests/support/wait_for.ts";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { newRequestId, randomBytes } from "@gateway/shared/process/ids";
import { type Closing, KeptRecords, type Opening } from "./records.ts";

const PRINCIPAL = { keyId: "k1", ownerId: "own_a" };
const CLOSING: Closing = {
  state: "complete",
  end: { usage: null, completionTokens: 3, error: null },
  bytes: 100,
  keepMs: 60_000,
  isForgotten: false,
};

function opening(more: Partial<Opening> = {}): Opening {
  return {
    requestId: newRequestId(),
    principal: PRINCIPAL,
    key: randomBytes(32),
    idempotencyKey: null,
    bodyDigest: "d1",
    lastsMs: 60_000,
    terms: null,
    facts: {
      keyId: PRINCIPAL.keyId,
      model: "m",
      kind: "chat",
      endpoint: "chat",
      stream: true,
      createdAtMs: 1,
      keepMs: 60_000,
      endsByMs: 60_001,
    },
    ...more,
  };
}

const nameOf = ({ principal: { ownerId }, requestId }: Opening) => ({
  ownerId,
  requestId,
});

async function startRecords(accountBytesMax = 10 * KEPT_LIMITS.reservedBytes) {
  const world = await startRedisWorld();
  const redis = world.link;
  return {
    world,
    records: new KeptRecords({ redis, accountBytesMax }),
    all: async () => {
      const names = await world.command("KEYS", "kept:*");
      return Array.isArray(names) ? names.map(String).sort() : [];
    },
    [Symbol.asyncDispose]: () => world[Symbol.asyncDispose](),
  };
}

Deno.test("of many requests with an idempotency key at one moment, one is new", async () => {
  await using t = await startRecords();
  const openings = Array.from(
    { length: 20 },
    () => opening({ idempotencyKey: "once" }),
  );
  const opened = await Promise.all(openings.map((o) => t.records.open(o)));
  const news = openings.filter((_, at) => opened[at]?.type === "new");
  assert.equal(news.length, 1);
  const [first = assert.fail()] = news;
  const { requestId } = first;
  const repeats = opened.filter(({ type }) => type === "repeat");
  assert.deepEqual(repeats, repeats.map(() => ({ type: "repeat", requestId })));
  const other = opening({ idempotencyKey: "once", bodyDigest: "d2" });
  assert.deepEqual(await t.records.open(other), { type: "mismatch" });
  // Another key of the account has idempotency keys of its own.
  const principal = { ...PRINCIPAL, keyId: "k2" };
  const another = opening({ idempotencyKey: "once", principal });
  assert.deepEqual(await t.records.open(another), { type: "new" });
});

Deno.test("a record says how its answer is read and how it ended; a second end is ignored", async () => {
  await using t = await startRecords();
  const one = opening({ idempotencyKey: "k" });
  const name = nameOf(one);
  assert.deepEqual(await t.records.open(one), { type: "new" });
  const running = await t.records.find(name) ?? assert.fail();
  assert.equal(running.state, "running");
  assert.deepEqual(new Uint8Array(running.key), one.key);
  assert.deepEqual(running.facts, one.facts);
  assert.equal(await t.records.close(name, CLOSING), true);
  const failed = { ...CLOSING, state: "failed" } as const;
  assert.equal(await t.records.close(name, failed), false);
  const ended = await t.records.find(name);
  assert.equal(ended?.state, "complete");
  assert.equal(ended?.end?.completionTokens, 3);
  const again = opening({ idempotencyKey: "k" });
  assert.equal((await t.records.open(again)).type, "repeat");
});

Deno.test("what a request reserves is not written to a record that was removed", async () => {
  await using t = await startRecords();
  const one = opening();
  const name = nameOf(one);
  await t.records.open(one);
  const terms = {
    reservation: {
      id: "l",
      principal: PRINCIPAL,
      model: "m",
      atMs: 1,
      reservedTokens: 2,
      reservedUnits: null,
    },
    estimate: {
      promptTokens: 1,
      totalTokens: 2,
      bounds: { promptTokensMax: 1, completionTokensMax: 1 },
    },
  };
  await t.records.reserve(name, terms, one.facts);
  assert.deepEqual((await t.records.find(name))?.terms, terms);
  await t.records.remove(name);
  await t.records.reserve(name, terms, one.facts);
  assert.deepEqual(await t.all(), ["kept:due", "kept:{own_a}:bytes"]);
});

Deno.test("what is removed or forgotten leaves its idempotency key free, and nothing behind", async () => {
  await using t = await startRecords();
  const removed = opening({ idempotencyKey: "k" });
  await t.records.open(removed);
  assert.equal(await t.records.remove(nameOf(removed)), true);
  assert.equal(await t.records.remove(nameOf(removed)), false);
  assert.equal(await t.records.find(nameOf(removed)), null);
  assert.deepEqual(await t.all(), ["kept:due", "kept:{own_a}:bytes"]);
  const bytes = await t.world.command("HGETALL", "kept:{own_a}:bytes");
  assert.deepEqual(bytes, ["all", "0"]);
  const failed = opening({ idempotencyKey: "k" });
  await t.records.open(failed);
  await t.records.close(nameOf(failed), { ...CLOSING, isForgotten: true });
  const next = opening({ idempotencyKey: "k", bodyDigest: "d3" });
  assert.equal((await t.records.open(next)).type, "new");
});

Deno.test("an account keeps no more than it may, until something of it has expired", async () => {
  await using t = await startRecords(2 * KEPT_LIMITS.reservedBytes);
  const short = opening({ lastsMs: 50 });
  for (const one of [short, opening()]) {
    assert.equal((await t.records.open(one)).type, "new");
  }
  assert.equal((await t.records.open(opening())).type, "full");
  const other = { keyId: "k", ownerId: "own_b" };
  const others = opening({ principal: other });
  assert.equal((await t.records.open(others)).type, "new");
  // The short one expires.
  await until(async () => (await t.records.open(opening())).type === "new");
  assert.equal((await t.records.open(opening())).type, "full");
});

Deno.test("an answer without a byte that has expired keeps nobody from opening others", async () => {
  await using t = await startRecords();
  const empty = opening();
  await t.records.open(empty);
  const closing = { ...CLOSING, bytes: 0, keepMs: 1, isForgotten: true };
  await t.records.close(nameOf(empty), closing);
  await until(async () => await t.records.find(nameOf(empty)) === null);
  assert.equal((await t.records.open(opening())).type, "new");
  const all = await t.world.command("HGET", "kept:{own_a}:bytes", "all");
  assert.equal(all, String(KEPT_LIMITS.reservedBytes));
});

Deno.test("a new record is due at once to be looked after: its edge may be killed", async () => {
  await using t = await startRecords();
  const one = opening();
  await t.records.open(one);
  const atMs = Number(
    await t.world.command(
      "ZSCORE",
      "kept:due",
      `${one.principal.ownerId}:${one.requestId}`,
    ),
  );
  const inMs = atMs - Date.now();
  assert.ok(Math.abs(inMs - KEPT_LIMITS.orphanMs) < 10_000, `${inMs} ms`);
});

Deno.test("an answer that is due is claimed by one edge at a time, until it is released", async () => {
  await using t = await startRecords();
  const name = nameOf(opening());
  await t.records.setDueIn(0, [name]);
  const claims = await Promise.all([t.records.claim(), t.records.claim()]);
  assert.deepEqual(claims.flat(), [name]);
  await t.records.setDueIn(0, [name]);
  await t.records.clearDue([name]);
  assert.deepEqual(await t.records.claim(), []);
});

Deno.test("an answer that has ended is due when its record expires, and no second end changes that", async () => {
  await using t = await startRecords();
  const [kept, forgotten, removed] = [opening(), opening(), opening()];
  for (const one of [kept, forgotten, removed]) await t.records.open(one);
  await t.records.close(nameOf(kept), CLOSING);
  await t.records.close(nameOf(kept), { ...CLOSING, keepMs: 1 });
  await t.records.close(nameOf(forgotten), { ...CLOSING, keepMs: 1 });
  await t.records.remove(nameOf(removed));
  await t.records.close(nameOf(removed), { ...CLOSING, keepMs: 1 });
  const claimed = await until(async () => {
    const names = await t.records.claim();
    return names.length > 0 && names;
  });
  assert.deepEqual(claimed, [nameOf(forgotten)]);
  const all = [kept, forgotten, removed].map(nameOf);
  await until(async () => (await t.records.gone(all)).length === 2);
  assert.deepEqual(await t.records.gone(all), all.slice(1));
  assert.deepEqual(await t.records.gone([]), []);
});

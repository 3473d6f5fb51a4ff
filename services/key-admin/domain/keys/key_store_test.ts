/** Keys in a real Redis: their lifecycle, concurrent changes, lists. */
import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
import { hashKeyValue, isWellFormedKey } from "@gateway/shared/keys/key";
import * as record from "@gateway/shared/keys/record";
import { GRACES } from "./graces.ts";
import { KeyStore } from "./key_store.ts";
import type { KeyFilter, PageQuery } from "./key_page.ts";
import type { KeySettings } from "./settings.ts";
import {
  ACTOR,
  changeKeys,
  findLost,
  Ledger,
  OWNER,
  SETTINGS,
} from "../../key_changes_fixture.ts";
import { startRedis, until } from "../../redis_fixture.ts";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import { asList, asTexts } from "../store/redis.ts";
import type { RedisLink } from "@gateway/shared/redis/link";

const OTHER = "own_BBBBBBBBBBBBBBBBBBBB";
const PAGE: PageQuery = {
  filter: "all",
  search: "",
  after: "",
  rows: 50,
  day: "20261120",
};
/**
 * When the server is killed: this many writers at once, after this many changes of each
 * kind.
 */
const WRITERS = 8;
const CHANGES_MIN = 20;

async function setup() {
  const server = await startRedis();
  const redis = await server.connect();
  const writer = await server.connect();
  const store = new KeyStore({ redis, writer, randomBytes });
  const end = () => server[Symbol.asyncDispose]();
  return { server, redis, store, [Symbol.asyncDispose]: end };
}

const create = (store: KeyStore, settings = SETTINGS, ownerId = OWNER) =>
  store.create({ ownerId, settings, actor: ACTOR });

const isFulfilled = ({ status }: PromiseSettledResult<unknown>) =>
  status === "fulfilled";

const refuses = (reason: string, change: Promise<unknown>) =>
  assert.rejects(change, { name: "KeyRefused", reason });

const at = (keyId: string, version: number | null = null) => ({
  ownerId: OWNER,
  keyId,
  version,
  actor: ACTOR,
});

/** Gives the owner this many keys, without records: only their number matters. */
async function pretendKeys(redis: RedisLink, count: number): Promise<void> {
  const ids = Array.from({ length: count }, (_, n) => [
    String(n + 1),
    `key_${String(n).padStart(20, "0")}`,
  ]);
  while (ids.length > 0) {
    const some = ids.splice(0, 2_000).flat();
    await redis.command(["ZADD", record.keysKey(OWNER), ...some]);
  }
}

Deno.test("ASVS 11.5.1, API2: from creation to deletion, a key is stored as its hash and its value nowhere", async () => {
  await using t = await setup();
  const { key, value } = await create(t.store);
  assert.ok(isWellFormedKey(value));
  const lookup = record.hashKey(hashKeyValue(value));
  assert.equal(await t.redis.command(["GET", lookup]), `${key.id}:${OWNER}`);
  assert.deepEqual(await t.store.get(OWNER, key.id), key);
  const names = asTexts(await t.redis.command(["KEYS", "*"]));
  for (const name of names) {
    const dump = await t.redis.command(["DUMP", name]);
    assert.ok(!`${name} ${dump}`.includes(value.slice(5, 40)), name);
  }
  const store = await t.redis.command(["GET", record.STORE_KEY]);
  assert.match(String(store), /^sto_[0-9A-Za-z]{20}$/);
  assert.equal((await t.store.disable(at(key.id, 1))).state, "disabled");
  assert.equal((await t.store.get(OWNER, key.id))?.state, "disabled");
  const order = record.stopKey({ keyId: key.id, ownerId: OWNER });
  await t.redis.command(["HSET", order, "at", "1"]);
  assert.equal((await t.store.enable(at(key.id, 2))).state, "enabled");
  assert.equal(await t.redis.command(["EXISTS", order]), 0);
  await create(t.store, SETTINGS, OTHER);
  await t.store.delete(at(key.id, 3));
  assert.equal(await t.store.get(OWNER, key.id), null);
  const stored = record.recordKey({ keyId: key.id, ownerId: OWNER });
  const left = ["EXISTS", stored, record.keysKey(OWNER), lookup];
  assert.equal(await t.redis.command(left), 0);
  const name = await t.redis.command(["GET", record.STORE_KEY]);
  assert.equal(name, store, "it stays");
  const entries = ["XRANGE", record.auditKey(OWNER), "-", "+"];
  const audit = JSON.stringify(await t.redis.command(entries));
  for (const action of ["created", "disabled", "enabled", "deleted"]) {
    assert.ok(audit.includes(`key.${action}`), action);
  }
  assert.ok(!audit.includes(key.hash) && !audit.includes(value));
});

Deno.test("ASVS 2.3.4: of concurrent changes to one version, one wins; without a version all take effect", async () => {
  await using t = await setup();
  const { key } = await create(t.store);
  const results = await Promise.allSettled(
    Array.from(
      "abcdefghijklmnopqrst",
      (tab) => t.store.edit(at(key.id, 1), { description: tab }),
    ),
  );
  assert.equal(results.filter(isFulfilled).length, 1);
  await Promise.all([
    t.store.disable(at(key.id)),
    t.store.edit(at(key.id), { description: "Renamed" }),
    t.store.edit(at(key.id), { models: ["small"] }),
  ]);
  const now = await t.store.get(OWNER, key.id);
  const { state, description, models, version } = now ?? {};
  const all = [state, description, models, version];
  assert.deepEqual(all, ["disabled", "Renamed", ["small"], 5]);
});

Deno.test("ASVS 1.2.4: a malformed id gets into no Redis key", async () => {
  await using t = await setup();
  for (const keyId of ["", "*", "key_}:{x", `key_${"a".repeat(20)}\n`]) {
    assert.equal(await t.store.get(OWNER, keyId), null);
    await refuses("not_found", t.store.delete(at(keyId)));
  }
});

Deno.test("a form nonce creates one key", async () => {
  await using t = await setup();
  const form = { ownerId: OWNER, settings: SETTINGS, actor: ACTOR, once: "o" };
  const results = await Promise.allSettled(
    Array.from("0123456789", () => t.store.create(form)),
  );
  assert.equal(results.filter(isFulfilled).length, 1);
  for (const result of results) {
    if (result.status === "fulfilled") continue;
    assert.equal(result.reason.reason, "already_made");
  }
  assert.equal((await t.store.list(OWNER, PAGE)).rows.length, 1);
  const lookups = await t.redis.command(["KEYS", "hash:*"]);
  assert.equal(asList(lookups).length, 1);
});

Deno.test("API6: an owner has at most 100,000 keys", async () => {
  await using t = await setup();
  const { key } = await create(t.store);
  await pretendKeys(t.redis, KEY_LIMITS.keysPerOwnerMax - 2);
  assert.ok((await create(t.store)).key.id, "the last one");
  const names = await t.redis.command(["DBSIZE"]);
  await refuses("too_many", create(t.store));
  await refuses("too_many", t.store.rotate(at(key.id), 0));
  assert.equal(await t.redis.command(["DBSIZE"]), names, "nothing is left");
  assert.equal((await t.store.get(OWNER, key.id))?.version, 1);
  await create(t.store, SETTINGS, OTHER);
  await t.store.delete(at(key.id));
  await create(t.store);
});

Deno.test("rotation makes a key with the same settings and never extends the old one", async () => {
  await using t = await setup();
  for (const { ms: graceMs } of Object.values(GRACES)) {
    for (const leftMs of [null, 60_000]) {
      const beforeMs = Date.now();
      const expiresAtMs = leftMs && beforeMs + leftMs;
      const old = await create(t.store, { ...SETTINGS, expiresAtMs });
      const target = at(old.key.id, 1);
      const { key, value } = await t.store.rotate(target, graceMs);
      assert.notEqual(value, old.value);
      const { id, hash, hint, createdAtMs } = key;
      const replaces = [old.key.id, old.key.hint];
      const own = { id, hash, hint, createdAtMs, replaces };
      assert.deepEqual(key, { ...old.key, ...own });
      const retired = await t.store.get(OWNER, old.key.id);
      assert.deepEqual(retired?.replacedBy, [id, hint]);
      const endMs = retired?.expiresAtMs ?? 0;
      const mostMs = Math.min(leftMs ?? graceMs, graceMs);
      assert.ok(endMs >= beforeMs + mostMs - 1_000, `${endMs}`);
      assert.ok(endMs <= Date.now() + mostMs, `${endMs}`);
      assert.equal(retired?.state, "enabled");
    }
  }
});

Deno.test("a rotation does not refill budgets: the new key begins where the old one is", async () => {
  await using t = await setup();
  const today = new Date().toISOString().slice(0, 10).replaceAll("-", "");
  const spent = {
    total: "70",
    [`d${today}`]: "5",
    [`m${today.slice(0, 6)}`]: "9",
  };
  const { key: old } = await create(t.store);
  const nameOf = (keyId: string, window: string) =>
    record.spendKey({ ownerId: OWNER, keyId }, window);
  for (const [window, nanos] of Object.entries(spent)) {
    const name = nameOf(old.id, window);
    await t.redis.command(["HSET", name, "s", nanos, "h", "3"]);
    if (window !== "total") await t.redis.command(["EXPIRE", name, "1000"]);
  }
  const { key } = await t.store.rotate(at(old.id), 0);
  for (const [window, nanos] of Object.entries(spent)) {
    const name = nameOf(key.id, window);
    const fields = await t.redis.command(["HGETALL", name]);
    assert.deepEqual(fields, ["s", nanos], window);
    const seconds = await t.redis.command(["TTL", name]);
    assert.equal(Number(seconds) > 0, window !== "total");
    const held = await t.redis.command(["HGET", nameOf(old.id, window), "h"]);
    assert.equal(held, "3", "it comes back to the old one");
  }
});

Deno.test("only a key that is in use is rotated", async () => {
  await using t = await setup();
  const off = (await create(t.store)).key;
  await t.store.disable(at(off.id));
  const over = (await create(t.store, { ...SETTINGS, expiresAtMs: 1 })).key;
  for (const { id: keyId } of [off, over]) {
    const total = record.spendKey({ ownerId: OWNER, keyId }, "total");
    await t.redis.command(["HSET", total, "s", "70"]);
  }
  const before = await t.redis.command(["DBSIZE"]);
  for (const { id } of [off, over]) {
    await refuses("not_rotatable", t.store.rotate(at(id), 0));
  }
  assert.equal(await t.redis.command(["DBSIZE"]), before);
});

Deno.test("pages follow each other without gaps, whatever is deleted meanwhile", async () => {
  await using t = await setup();
  const ids: string[] = [];
  for (let n = 0; n < 23; n++) ids.push((await create(t.store)).key.id);
  const list = async (after: string, rows = 5) => {
    const page = await t.store.list(OWNER, { ...PAGE, rows, after });
    return { ...page, ids: page.rows.map(({ key }) => key.id) };
  };
  const listed: string[] = [];
  const cursors = [""];
  for (const cursor of cursors) {
    const page = await list(cursor);
    listed.push(...page.ids);
    if (page.next !== null) cursors.push(page.next);
  }
  // Those that were made in the same millisecond are in the order of their ids.
  assert.deepEqual(listed.toSorted(), ids.toSorted());
  const all = await list("", 23);
  assert.deepEqual([all.next, all.ids], [null, listed]);
  await t.store.delete(at(listed[4] ?? ""));
  assert.deepEqual((await list(cursors[1] ?? "")).ids, listed.slice(5, 10));
});

Deno.test("a list finds keys by words, state and the end of their value, and shows today's counters", async () => {
  await using t = await setup();
  const keyNamed = async (
    description: string,
    more: Partial<KeySettings> = {},
  ) => (await create(t.store, { ...SETTINGS, description, ...more })).key;
  const api = await keyNamed("Prod API_v2 apis");
  const expiresAtMs = Date.now() + 60_000;
  const chat = await keyNamed("用户聊天 chat robot", { expiresAtMs });
  const old = await keyNamed("Old API café");
  await t.store.disable(at(old.id));
  const cases: { search: string; filter: KeyFilter; ids: string[] }[] = [
    { search: "", filter: "all", ids: [old.id, chat.id, api.id] },
    { search: "", filter: "enabled", ids: [chat.id, api.id] },
    { search: "", filter: "disabled", ids: [old.id] },
    { search: "", filter: "with_expiry", ids: [chat.id] },
    { search: "ap", filter: "all", ids: [old.id, api.id] },
    { search: "API", filter: "enabled", ids: [api.id] },
    { search: "api", filter: "with_expiry", ids: [] },
    { search: "v2 prod", filter: "all", ids: [api.id] },
    { search: "prod nothing", filter: "all", ids: [] },
    { search: "CAFE\u0301", filter: "all", ids: [old.id] },
    { search: "聊天", filter: "all", ids: [chat.id] },
    { search: api.hint.slice(-4), filter: "all", ids: [api.id] },
    { search: "%^&", filter: "all", ids: [] },
    { search: "i_v2", filter: "all", ids: [api.id] },
  ];
  for (const { search, filter, ids } of cases) {
    const { rows } = await t.store.list(OWNER, { ...PAGE, search, filter });
    const found = rows.map(({ key }) => key.id).sort();
    assert.deepEqual(found, ids.toSorted(), `${search} in ${filter}`);
  }
  await t.store.edit(at(old.id), { description: "Renamed" });
  const gone = await t.store.list(OWNER, { ...PAGE, search: "café" });
  assert.equal(gone.rows.length, 0);
  const usage = `use:{${OWNER}}:${old.id}:20261120`;
  const counters = { "09:req": 3, "09:in": 100, "10:req": 4, "10:out": 7 };
  const flat = Object.entries(counters).flat().map(String);
  await t.redis.command(["HSET", usage, ...flat]);
  const { rows } = await t.store.list(OWNER, PAGE);
  const row = rows.find(({ key }) => key.id === old.id);
  assert.deepEqual(row?.totals, { requests: 7, tokens: 107, cost: 0 });
});

Deno.test("a search examines a bounded number of keys, and the next page continues", async () => {
  await using t = await setup();
  const { key } = await create(t.store);
  await t.redis.command(["ZADD", record.keysKey(OWNER), "0", key.id]);
  await pretendKeys(t.redis, 10_500);
  const query = { ...PAGE, search: "billing" };
  const none = await t.store.list(OWNER, query);
  assert.deepEqual(none.rows, []);
  const after = none.next ?? "";
  const found = await t.store.list(OWNER, { ...query, after });
  assert.deepEqual(found.rows.map((row) => row.key.id), [key.id]);
  assert.equal(found.next, null);
});

Deno.test("promise 8: every kind of acknowledged change survives kill -9", async () => {
  await using t = await setup();
  const ledger = new Ledger();
  const writers = Array.from(
    { length: WRITERS },
    () => changeKeys(t.store, ledger, () => false),
  );
  const isEnough = () =>
    Object.values(ledger.counts).every((count) => count >= CHANGES_MIN);
  await until(isEnough);
  // In the middle of writing: some changes were acknowledged just now.
  await t.server.kill();
  await Promise.all(writers);
  await t.server.restart();
  const redis = await t.server.connect();
  const writer = await t.server.connect();
  const store = new KeyStore({ redis, writer, randomBytes });
  const nothing = { lost: [], harmless: [] };
  assert.deepEqual(await findLost(redis, store, ledger), nothing);
});

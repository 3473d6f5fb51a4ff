/** The lists of owners and of all keys, as operators see them. */
import assert from "node:assert/strict";
import { USAGE_KINDS, usageDay } from "@gateway/shared/keys/limiter_state";
import { ownerUsageKey } from "@gateway/shared/keys/record";
import { startConsole, storedKey } from "../../console_fixture.ts";
import { countUse } from "../../usage_fixture.ts";
import type { RowPage } from "../store/redis.ts";

/** Follows a list to its end. */
async function allOf<T>(
  read: (after: string) => Promise<RowPage<T>>,
  after = "",
): Promise<T[]> {
  const { rows, next } = await read(after);
  return next === null ? rows : [...rows, ...await allOf(read, next)];
}

Deno.test("operators page through owners and all keys without gaps, and find them by their words", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { deps: { people, owners }, clock } = site;
  const emails: string[] = [];
  const keys: { id: string; hint: string }[] = [];
  for (const [n, count] of [0, 1, 3, 0, 60, 2, 0].entries()) {
    const email = `person${n}@${n % 2 ? "odd" : "even"}.example.org`;
    clock.nowMs += 1;
    const ownerId = await owners.ensure(email);
    emails.unshift(email);
    for (let k = 0; k < count; k++) {
      const description = `Key no-${k} of ${n}`;
      keys.push(await storedKey(site, ownerId, { description }));
    }
  }
  const query = { search: "", after: "", rows: 200, day: usageDay(0) };
  for (const rows of [1, 2, 7, 200]) {
    const request = { ...query, rows };
    const listed = await allOf((after) => people.list({ ...request, after }));
    assert.deepEqual(listed.map(({ account }) => account.email), emails);
    assert.deepEqual(listed.map((row) => row.keys), [0, 2, 60, 0, 3, 1, 0]);
    const found = await allOf((after) => people.keys({ ...request, after }));
    const ids = found.map(({ key }) => key.id);
    assert.deepEqual(ids.toSorted(), keys.map(({ id }) => id).toSorted());
  }
  const [{ id, hint } = assert.fail()] = keys;
  const searches: { search: string; ownerCount: number; keyCount: number }[] = [
    // Ids are random, and may contain any short word without a hyphen.
    { search: "odd.example", ownerCount: 3, keyCount: 3 },
    { search: "PERSON4 even.example", ownerCount: 1, keyCount: 60 },
    { search: id, ownerCount: 0, keyCount: 1 },
    { search: hint.slice(-4), ownerCount: 0, keyCount: 1 },
    { search: "key no-0", ownerCount: 0, keyCount: 4 },
    { search: "person2 no-1", ownerCount: 0, keyCount: 1 },
    { search: "nobody@example.org", ownerCount: 0, keyCount: 0 },
  ];
  for (const { search, ownerCount, keyCount } of searches) {
    const request = { ...query, search };
    assert.equal((await people.list(request)).rows.length, ownerCount, search);
    assert.equal((await people.keys(request)).rows.length, keyCount, search);
  }
  const invalid = { ...query, after: "x" };
  await assert.rejects(people.keys(invalid), { name: "BadCursor" });
  await assert.rejects(people.list(invalid), { name: "BadCursor" });
});

Deno.test("the owners who use most: the days of each are added up", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { deps: { people, owners }, clock } = site;
  const administrator = await site.server.connect();
  const use = async (name: string, daysAgo: number, requests: number) => {
    const ownerId = await owners.ensure(`${name}@example.org`);
    const day = usageDay(clock.nowMs - daysAgo * 86_400_000);
    const { requests: ran, promptTokens, completionTokens, cost } = USAGE_KINDS;
    const counts = [
      [ran, requests],
      [promptTokens, 10],
      [completionTokens, 5],
      [cost, daysAgo + 1],
    ]
      .flatMap(([kind = "", n]) => [`22:${kind}`, n, `23:${kind}:small-1`, n]);
    const counter = ownerUsageKey(ownerId, day);
    await administrator.command(["HSET", counter, ...counts.map(String)]);
  };
  await use("ada", 0, 3);
  await use("ada", 29, 1);
  await use("ada", 30, 1_000);
  await use("bob", 1, 7);
  await owners.ensure("idle@example.org");
  const day = usageDay(clock.nowMs);
  const listed = async (by: string, days: number) => {
    const query = { search: "", after: "", rows: 50, day, days };
    const { rows } = await people.list({ ...query, sort: `-${by}` });
    assert.equal(rows.length, 3);
    return rows.filter(({ totals }) => totals.tokens > 0);
  };
  const top = async (by: string, days: number) =>
    (await listed(by, days)).map(({ account, totals }) => [
      account.email.slice(0, 3),
      totals.requests,
      totals.tokens,
    ]);
  assert.deepEqual(await top("tokens", 1), [["ada", 6, 30]]);
  const month = [["ada", 8, 60], ["bob", 14, 30]];
  assert.deepEqual(await top("tokens", 30), month);
  assert.deepEqual(await top("requests", 30), month.toReversed());
  assert.deepEqual(await top("cost", 1), [["ada", 6, 30]]);
  const spent = (await listed("cost", 30)).map(({ totals }) => totals.cost);
  assert.deepEqual(spent, [62, 4]);
});

Deno.test("all keys are sorted over all accounts, page by page, and found if they are unused", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const { deps: { people, owners }, clock } = site;
  for (const [n, names] of [["b", "d"], ["c", "a10", "a9"], []].entries()) {
    const ownerId = await owners.ensure(`person${n}@example.org`);
    for (const description of names) {
      await storedKey(site, ownerId, { description });
    }
  }
  const query = { search: "", after: "", rows: 2, day: usageDay(clock.nowMs) };
  const sorted = async (sort: string) =>
    (await allOf((after) => people.keys({ ...query, after, sort })))
      .map(({ key }) => key.description);
  const names = ["a9", "a10", "b", "c", "d"];
  assert.deepEqual(await sorted("description"), names);
  assert.deepEqual(await sorted("-description"), names.toReversed());
  assert.deepEqual(
    (await sorted("account")).map((name) => "bd".includes(name)),
    [true, true, false, false, false],
  );
  await assert.rejects(
    people.keys({ ...query, sort: "created", after: "key_1" }),
    { name: "BadCursor" },
  );
  const unused = (day: string) =>
    people.keys({ ...query, rows: 9, day, filter: "unused" });
  assert.equal((await unused(query.day)).rows.length, 0);
  const later = usageDay(clock.nowMs + 92 * 86_400_000);
  assert.equal((await unused(later)).rows.length, 5);
  const used = (await unused(later)).rows[0] ?? assert.fail("no key");
  const administrator = await site.server.connect();
  await countUse({ deps: { redis: administrator } }, {
    ownerId: used.ownerId,
    keyId: used.key.id,
  }, { atMs: clock.nowMs + 10 * 86_400_000, counts: { requests: 1 } });
  assert.equal((await unused(later)).rows.length, 4);
});

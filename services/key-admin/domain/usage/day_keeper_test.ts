// Guarantee: usage of a day is there for 400 days, in the same numbers, whoever adds
// it up and however often.
import assert from "node:assert/strict";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { ownerUsageKey, usageKey } from "@gateway/shared/keys/record";
import {
  startConsole,
  storedKey,
  type TestConsole,
} from "../../console_fixture.ts";
import { countUse } from "../../usage_fixture.ts";
import { DayKeeper } from "./day_keeper.ts";
import { GATEWAY } from "./day_sums.ts";
import { parseSpan, type UsageSpan } from "./span.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

const keeperOf = ({ deps }: TestConsole) => new DayKeeper(deps);

/** What a span of days has, by what pages show. */
async function shown(
  { deps }: TestConsole,
  scope: { ownerId: string; keyId: string | null },
  { range, ids }: { range: string; ids: string[] },
) {
  for (const zone of ["UTC", "Asia/Tokyo"]) {
    const span = spanOf(deps, { range, zone });
    const parts = ids.map((id) => ({
      id,
      scope: scope.ownerId === GATEWAY
        ? { ownerId: id, keyId: null }
        : { ownerId: scope.ownerId, keyId: id },
    }));
    const report = await deps.usage.read(scope, span);
    const groups = await deps.usage.groupsOf(report, parts);
    for (const [at, part] of parts.entries()) {
      const { total, buckets } = await deps.usage.read(part.scope, span);
      assert.partialDeepStrictEqual(groups[at], { total, buckets });
    }
  }
  const span = spanOf(deps, { range, zone: "" });
  const { total, models, buckets } = await deps.usage.read(scope, span);
  const parts = await deps.usage.parts(scope, span, ids);
  return { total, models: new Map([...models].sort()), buckets, parts };
}

function spanOf(
  { now }: TestConsole["deps"],
  texts: { range: string; zone: string },
): UsageSpan {
  const time = { nowMs: now(), defaultZone: "UTC" };
  const span = parseSpan({ from: "", to: "", ...texts }, time);
  assert.ok(!("message" in span));
  return span;
}

/** What two keys used on some days, in two hours of each. */
async function startUsed() {
  const site = await startConsole({ redisUser: "key-admin" });
  const { deps, clock } = site;
  const administrator = await site.server.connect();
  clock.nowMs = Date.parse("2026-11-29T10:30:00Z");
  const ownerId = await deps.owners.ensure("ada@example.org");
  const { id: first } = await storedKey(site, ownerId);
  const { id: second } = await storedKey(site, ownerId);
  const counting = { deps: { redis: administrator } };
  for (const daysAgo of [0, 1, 2, 20, 39]) {
    for (const [keyId, requests] of [[first, 3], [second, 5]] as const) {
      for (const hour of [2, 3]) {
        await countUse(counting, { ownerId, keyId }, {
          atMs: clock.nowMs - daysAgo * DAY_MS - hour * HOUR_MS,
          model: daysAgo % 2 === 0 ? "small-1" : "large-1",
          endpoint: "chat",
          counts: { requests, promptTokens: 10 * requests, cost: 2 ** 40 + 1 },
        });
      }
    }
  }
  const account = { ownerId, keyId: null };
  const ids = [first, second];
  const key = { ownerId, keyId: first };
  const gateway = { ownerId: GATEWAY, keyId: null };
  const look = async () => ({
    account: await shown(site, account, { range: "90d", ids }),
    key: await shown(site, key, { range: "90d", ids: [] }),
    gateway: await shown(site, gateway, { range: "90d", ids: [ownerId] }),
  });
  return { site, administrator, key, account, ids, look };
}

Deno.test("what is shown is the same before and after days are kept, as the deployed user", async () => {
  const { site, administrator, key, account, ids, look } = await startUsed();
  await using _ = site;
  const { clock } = site;
  const before = await look();
  assert.equal(before.account.total.requests, 80);
  assert.deepEqual(before.gateway.total, before.account.total);
  await keeperOf(site).keep();
  await keeperOf(site).keep();
  assert.deepEqual(await look(), before);
  const yesterday = usageDay(clock.nowMs - DAY_MS);
  const names = [
    usageKey(key, yesterday),
    ownerUsageKey(account.ownerId, yesterday),
    ownerUsageKey(GATEWAY, yesterday),
  ];
  for (const name of names) {
    const ttlS = Number(await administrator.command(["TTL", name]));
    const days = ttlS / 86_400;
    assert.ok(days > 398 && days <= 401, `${name}: ${days} days`);
  }

  // Five days later the oldest one has lost its hours, and nothing else.
  clock.nowMs += 5 * DAY_MS;
  const later = await look();
  await keeperOf(site).keep();
  await keeperOf(site).keep();
  assert.deepEqual(await look(), later);
  assert.equal(later.account.total.requests, 80);
  const oldest = usageKey(key, usageDay(clock.nowMs - 44 * DAY_MS));
  const fieldOf = (counter: string) =>
    administrator.command(["HGET", oldest, `:${counter}@chat:large-1`]);
  assert.equal(await fieldOf("req"), "6");
  assert.equal(await fieldOf("cost"), String(2 ** 41 + 2));
  const week = await shown(site, account, { range: "7d", ids });
  const requestsOf = (id: string) => week.parts.get(id)?.requests;
  assert.deepEqual(ids.map(requestsOf), [12, 20]);
});

Deno.test("two that add up at the same time count nothing twice", async () => {
  await using site = await startConsole();
  const { clock, deps } = site;
  clock.nowMs = Date.parse("2026-11-29T10:30:00Z");
  const ownerId = await deps.owners.ensure("ada@example.org");
  const { id } = await storedKey(site, ownerId);
  await countUse(site, { ownerId, keyId: id }, {
    atMs: clock.nowMs - DAY_MS,
    counts: { requests: 4 },
  });
  await Promise.all([keeperOf(site).keep(), keeperOf(site).keep()]);
  const look = { range: "30d", ids: [id] };
  const { parts } = await shown(site, { ownerId, keyId: null }, look);
  assert.deepEqual([...parts], [[id, { requests: 4 }]]);
});

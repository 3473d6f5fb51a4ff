/**
 * Measures pages of usage with a year of 1,000 keys, each used with two models on each
 * day, for the last 40 days in each of several hours.
 *
 *     deno run --allow-all bench/usage_pages.ts [keys] [days]
 */
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { ownerUsageKey, usageKey } from "@gateway/shared/keys/record";
import { defineScript } from "@gateway/shared/redis/link";
import {
  startConsole,
  storedKey,
} from "../services/key-admin/console_fixture.ts";
import { DayKeeper } from "../services/key-admin/domain/usage/day_keeper.ts";
import { routeOwner } from "../services/key-admin/routes_fixture.ts";
import { print } from "../tests/support/process.ts";

const KEYS = Number(Deno.args[0] ?? 1_000);
const DAYS = Number(Deno.args[1] ?? 365);
const DAY_MS = 86_400_000;
const HOURS_DAYS = 40;
const HOURS = ["08", "09", "11", "14", "15", "20"];
const REQUESTS = 20;

/** Counts a day of all keys of an account, as edges and then key-admin leave it. */
const FILL = defineScript(
  "bench/fill-usage",
  `for _, hour in ipairs(ARGV) do
  for _, model in ipairs({ 'small-1', 'large-1' }) do
    for at, key in ipairs(KEYS) do
      local count = at == 1 and #KEYS - 1 or 1
      local of = '@chat:' .. model
      redis.call('HINCRBY', key, hour .. ':req' .. of, 3 * count)
      redis.call('HINCRBY', key, hour .. ':in' .. of, 4000 * count)
      redis.call('HINCRBY', key, hour .. ':out' .. of, 900 * count)
      redis.call('HINCRBY', key, hour .. ':cost' .. of, 1234567 * count)
    end
  end
end`,
);

await using site = await startConsole({ settings: ["--appendonly", "no"] });
const { deps } = site;
const administrator = await site.server.connect();
const owner = await routeOwner(site, 1);
await deps.owners.giveRole(owner.ownerId);
const ids = [owner.keyId];
while (ids.length < KEYS) ids.push((await storedKey(site, owner.ownerId)).id);
for (let daysAgo = DAYS - 1; daysAgo >= 0; daysAgo--) {
  const day = usageDay(deps.now() - daysAgo * DAY_MS);
  const { ownerId } = owner;
  const keys = [
    ownerUsageKey(ownerId, day),
    ...ids.map((keyId) => usageKey({ ownerId, keyId }, day)),
  ];
  const args = daysAgo < HOURS_DAYS ? HOURS : [""];
  await administrator.evalScript(FILL, { keys, args }, { deadlineMs: 30_000 });
}
// As if key-admin had run all the time: it starts with the first day that there is.
const first = usageDay(deps.now() - DAYS * DAY_MS);
await administrator.command(["SET", "usage:summed", first]);
const start = performance.now();
await new DayKeeper(deps).keep();
print(
  `${KEYS} keys, ${DAYS} days: added up in ${
    ((performance.now() - start) / DAYS).toFixed(0)
  } ms a day`,
);
const memory = String(await administrator.command(["INFO", "memory"]));
print(`Redis: ${/used_memory_human:(\S+)/.exec(memory)?.[1]}`);

const today = new Date(deps.now()).toISOString().slice(0, 10);
const yearAgo = new Date(deps.now() - (DAYS - 1) * DAY_MS).toISOString()
  .slice(0, 10);
const year = `from=${yearAgo}&to=${today}`;
const PATHS = [
  "/usage",
  "/usage?range=30d",
  `/usage?${year}`,
  `/usage?${year}&by=model`,
  `/usage?${year}&by=key`,
  `/usage?${year}&by=key&zone=Asia/Tokyo`,
  `/keys/${owner.keyId}?${year}&by=model`,
  "/people/usage?range=30d&by=account",
  `/people/usage?${year}&by=model`,
  "/keys?sort=-tokens",
  "/people/keys?filter=unused",
];
for (const path of PATHS) {
  const times: number[] = [];
  let bytes = 0;
  for (let n = 0; n < REQUESTS; n++) {
    const start = performance.now();
    const { status, text } = await owner.client.get(path);
    if (status !== 200) throw new Error(`${path}: ${status}`);
    times.push(performance.now() - start);
    bytes = text.length;
  }
  times.sort((a, b) => a - b);
  const of = (share: number) =>
    (times[Math.floor(share * (times.length - 1))] ?? 0).toFixed(0);
  print(
    `${path}: p50 ${of(0.5)} ms, p95 ${of(0.95)} ms, ${
      (bytes / 1024).toFixed(0)
    } KiB`,
  );
}

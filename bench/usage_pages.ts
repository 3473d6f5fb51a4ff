/**
 * Measures pages of usage with a year of 1,000 keys, each used with two models on each
 * day, for the last 40 days in each of several hours.
 *
 *     deno run --allow-all bench/usage_pages.ts [keys] [days] [requests]
 *
 * Beside the times it states the processor time, with that of the client in this
 * process: on a busy machine only these say something.
 */
import process from "node:process";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { ownerUsageKey, usageKey } from "@gateway/shared/keys/record";
import { defineScript } from "@gateway/shared/redis/link";
import {
  startConsole,
  storedKey,
} from "../services/key-admin/console_fixture.ts";
import { DayKeeper } from "../services/key-admin/domain/usage/day_keeper.ts";
import {
  encodeSums,
  GATEWAY,
  SUMMED_KEY,
  sumsKey,
} from "../services/key-admin/domain/usage/day_sums.ts";
import { routeOwner } from "../services/key-admin/routes_fixture.ts";
import { print } from "../tests/support/process.ts";

const KEYS = Number(Deno.args[0] ?? 1_000);
const DAYS = Number(Deno.args[1] ?? 365);
const DAY_MS = 86_400_000;
const HOURS_DAYS = 40;
const HOURS = ["08", "09", "11", "14", "15", "20"];
const REQUESTS = Number(Deno.args[2] ?? 20);
const AT_ONCE = 50;

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

/** The counts of one key in this many hours and models. */
const countsOf = (rounds: number) => ({
  requests: 3 * rounds,
  inputTokens: 4_000 * rounds,
  outputTokens: 900 * rounds,
  cost: 1_234_567 * rounds,
});

await using site = await startConsole({ settings: ["--appendonly", "no"] });
const { deps } = site;
const administrator = await site.server.connect();
const owner = await routeOwner(site, 1);
await deps.owners.giveRole(owner.ownerId);
const ids = [owner.keyId];
while (ids.length < KEYS) {
  const count = Math.min(AT_ONCE, KEYS - ids.length);
  const made = Array.from(
    { length: count },
    () => storedKey(site, owner.ownerId),
  );
  ids.push(...(await Promise.all(made)).map(({ id }) => id));
}
print(`${ids.length} keys are there`);
const { ownerId } = owner;
const dayOf = (daysAgo: number) => usageDay(deps.now() - daysAgo * DAY_MS);
let rounds = 0;
for (let daysAgo = DAYS - 1; daysAgo >= 0; daysAgo--) {
  const day = dayOf(daysAgo);
  const keys = [
    ownerUsageKey(ownerId, day),
    ...ids.map((keyId) => usageKey({ ownerId, keyId }, day)),
  ];
  const args = daysAgo < HOURS_DAYS ? HOURS : [""];
  await administrator.evalScript(FILL, { keys, args }, { deadlineMs: 30_000 });
  if (daysAgo < 2) continue;
  // What key-admin leaves when the day has ended.
  rounds += args.length * 2;
  const sums = ids.flatMap((id) => [id, encodeSums(countsOf(rounds))]);
  const all = [ownerId, encodeSums(countsOf(rounds * KEYS))];
  const whole = ownerUsageKey(GATEWAY, day);
  await administrator.command(["HSET", sumsKey(ownerId, day), ...sums]);
  await administrator.command(["HSET", sumsKey(GATEWAY, day), ...all]);
  await administrator.command(["COPY", ownerUsageKey(ownerId, day), whole]);
}
print(`${DAYS} days are counted`);
await administrator.command(["SET", SUMMED_KEY, dayOf(2)]);
const start = performance.now();
await new DayKeeper(deps).keep();
print(`a day is added up in ${(performance.now() - start).toFixed(0)} ms`);
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
/** The processor time so far, of this process and of Redis, in ms. */
async function usedMs(): Promise<{ own: number; redis: number }> {
  const { user, system } = process.cpuUsage();
  const info = String(await administrator.command(["INFO", "cpu"]));
  const secondsOf = (name: string) =>
    Number(new RegExp(`^used_cpu_${name}:(\\S+)`, "m").exec(info)?.[1]);
  return {
    own: (user + system) / 1_000,
    redis: 1_000 * (secondsOf("user") + secondsOf("sys")),
  };
}

for (const path of PATHS) {
  const times: number[] = [];
  let bytes = 0;
  const before = await usedMs();
  for (let n = 0; n < REQUESTS; n++) {
    const start = performance.now();
    const { status, text } = await owner.client.get(path);
    if (status !== 200) throw new Error(`${path}: ${status}`);
    times.push(performance.now() - start);
    bytes = text.length;
  }
  const after = await usedMs();
  const mean = (name: "own" | "redis") =>
    ((after[name] - before[name]) / REQUESTS).toFixed(0);
  times.sort((a, b) => a - b);
  const percentile = (share: number) =>
    (times[Math.floor(share * (times.length - 1))] ?? 0).toFixed(0);
  print(
    `${path}: p50 ${percentile(0.5)} ms, p95 ${percentile(0.95)} ms, ${
      (bytes / 1024).toFixed(0)
    } KiB, CPU ${mean("own")} ms and ${mean("redis")} ms of Redis`,
  );
}

import { dayLimitField, USAGE_UNITS } from "@gateway/shared/keys/limiter_state";
import * as records from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisWorld } from "../admission_fixture.ts";

const STATE = "local last, req, tok, day, used, rpm, tpm = " +
  "struct.unpack('<ddddddd', s)";

/**
 * Moves every time in a state back, and leases with it. Redis' clock is the only
 * one that limits know, and they know it only by its distance to what is written:
 * for them this is the same as if the time had passed.
 */
const LET_TIME_PASS = `
local ms = tonumber(ARGV[1])
for _, key in ipairs({KEYS[1], KEYS[3]}) do
  local s = redis.call('HGET', key, 's')
  if s then
    ${STATE}
    redis.call('HSET', key, 's',
      struct.pack('<ddddddd', last - ms, req - ms, tok - ms, day, used, rpm, tpm))
  end
end
for _, key in ipairs({KEYS[2], KEYS[4]}) do
  for _, id in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZINCRBY', key, -ms, id)
  end
end
return 1`;

const DEADLINE_MS = 30_000;
const DAY_MS = 86_400_000;

/** Lets `ms` pass for the limits of a key and of its owner, but ends no day. Returns `ms`. */
export async function letTimePass(
  link: Pick<RedisLink, "command">,
  { principal, ms }: { principal: records.Principal; ms: number },
): Promise<number> {
  const { ownerId } = principal;
  const names = [
    ...[records.limiterKey(principal), records.leaseKey(principal)],
    ...[records.ownerLimiterKey(ownerId), records.ownerLeaseKey(ownerId)],
  ];
  const command = ["EVAL", LET_TIME_PASS, "4", ...names, String(ms)];
  await link.command(command, { deadlineMs: DEADLINE_MS });
  return ms;
}

const LET_DAY_END = `
local s = redis.call('HGET', KEYS[1], 's')
if not s then return end
${STATE}
redis.call('HSET', KEYS[1], 's',
  struct.pack('<ddddddd', last, req, tok, day - 1, used, rpm, tpm))
for _, unit in ipairs(ARGV) do
  local u = redis.call('HGET', KEYS[1], unit)
  if u then
    local day, count = struct.unpack('<dd', u)
    redis.call('HSET', KEYS[1], unit, struct.pack('<dd', day - 1, count))
  end
end`;

/** Lets midnight UTC pass for the budgets of a key and of its owner. Returns a day in ms. */
export async function letDayEnd(
  world: RedisWorld,
  principal: records.Principal,
) {
  const units = USAGE_UNITS.map(dayLimitField);
  const owner = records.ownerLimiterKey(principal.ownerId);
  for (const name of [records.limiterKey(principal), owner]) {
    await world.command("EVAL", LET_DAY_END, "1", name, ...units);
  }
  return DAY_MS;
}

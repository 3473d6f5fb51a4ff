// Redis' clock is the only one that limits know, and they know it only by its distance
// to what is written: to move that back is for them the same as if time had passed.
import {
  dayLimitField,
  LIMITER_FIELDS,
  USAGE_UNITS,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  type Principal,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";

const DEADLINE_MS = 30_000;
const DAY_MS = 86_400_000;
/**
 * In one step: an admission whose client has given up may arrive meanwhile, and what
 * it takes must not be overwritten.
 *
 * KEYS: limiters and leases of the key and of its owner. ARGV: ms, days, the field of
 * the state, those of units.
 */
const MOVE_BACK = `
local ms, days = tonumber(ARGV[1]), tonumber(ARGV[2])
local function change(key, field, change_numbers)
  local packed = redis.call('HGET', key, field)
  if not packed then return end
  local form = '<' .. string.rep('d', #packed / 8)
  local numbers = { struct.unpack(form, packed) }
  -- The last one is where unpacking ended.
  table.remove(numbers)
  change_numbers(numbers)
  redis.call('HSET', key, field, struct.pack(form, unpack(numbers)))
end
for at = 1, 2 do
  change(KEYS[at], ARGV[3], function(state)
    for n = 1, 3 do state[n] = state[n] - ms end
    state[4] = state[4] - days
  end)
  for n = 4, #ARGV do
    change(KEYS[at], ARGV[n], function(used) used[1] = used[1] - days end)
  end
end
for at = 3, 4 do
  for _, id in ipairs(redis.call('ZRANGE', KEYS[at], 0, -1)) do
    redis.call('ZINCRBY', KEYS[at], -ms, id)
  end
end`;

/**
 * Lets `ms` pass for the limits of a key and of its owner, but ends no day. Returns
 * `ms`.
 */
export async function letTimePass(
  link: Pick<RedisLink, "command">,
  { principal, ms }: { principal: Principal; ms: number },
): Promise<number> {
  await moveBack(link, principal, { ms, days: 0 });
  return ms;
}

/**
 * Lets midnight UTC pass for the budgets of a key and of its owner. Returns a day in
 * ms.
 */
export async function letDayEnd(
  link: Pick<RedisLink, "command">,
  principal: Principal,
): Promise<number> {
  await moveBack(link, principal, { ms: 0, days: 1 });
  return DAY_MS;
}

async function moveBack(
  link: Pick<RedisLink, "command">,
  principal: Principal,
  { ms, days }: { ms: number; days: number },
): Promise<void> {
  const { ownerId } = principal;
  const keys = [
    limiterKey(principal),
    ownerLimiterKey(ownerId),
    leaseKey(principal),
    ownerLeaseKey(ownerId),
  ];
  const fields = [LIMITER_FIELDS.state, ...USAGE_UNITS.map(dayLimitField)];
  const args = [String(ms), String(days), ...fields];
  await link.command(
    ["EVAL", MOVE_BACK, String(keys.length), ...keys, ...args],
    { deadlineMs: DEADLINE_MS },
  );
}

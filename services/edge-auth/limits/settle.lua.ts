import { defineScript, type RedisScript } from "@gateway/shared/redis/script";
import {
  LIMITER_EPOCH_MS,
  USAGE_DAYS_KEPT,
  USAGE_KINDS,
} from "@gateway/shared/keys/limiter_state";

/** A late settlement is remembered this long, so that repeating it does nothing. */
const LATE_GUARD_S = 3_600;
const USAGE_TTL_S = USAGE_DAYS_KEPT * 86_400;

/**
 * Ends one admitted request: frees its lease, corrects what was reserved to what
 * was used, counts usage. Does so once, however often it is called: whoever
 * removes the lease does the work.
 *
 * ```
 * KEYS  1 lim:{owner}:<key>   2 lease:{owner}:<key>   3 lim:{owner}   4 lease:{owner}
 *       5 use:{owner}:<key>:<yyyymmdd>   6 late:{owner}:<lease id>   7 use:{owner}:<yyyymmdd>
 * ARGV  1 lease id
 *       2 "held"     the lease is there, else the work was done before
 *         "late"     the lease was lost; key 6 takes its place as the guard
 *         "release"  nobody knows whether the request was admitted; undo it if it was,
 *                    the request it counted too
 *       3 flags, 4 key tpm, 5 owner tpm: as the admission answered
 *       6 tokens used less tokens reserved, 7 UTC day of the admission ("d" of the state)
 *       8 hour of the usage fields "00".."23", 9 requests, 10 prompt tokens,
 *         11 completion tokens, 12 errors: what to add
 *       "release": 3 tokens reserved, 4 record key, 5 owner limits key, and no more
 *
 * reply 1 done, 0 done before (or the lease was lost: only "held" cannot tell)
 * ```
 *
 * The correction is made in the units of the admission, so a limit that was
 * changed meanwhile does not distort it. A state that has expired is not revived.
 * Removing the lease comes first: a script that has written may go on when memory
 * is full.
 */
export const SETTLE: RedisScript = defineScript(
  "settle",
  `
local call = redis.call
local mode = ARGV[2]
if mode == 'late' then
  if not call('SET', KEYS[6], '1', 'NX', 'EX', ${LATE_GUARD_S}) then return 0 end
  call('ZREM', KEYS[2], ARGV[1])
elseif call('ZREM', KEYS[2], ARGV[1]) == 0 then
  return 0
end

local function correct(state, tpm, delta, today, requestMs)
  if tpm == 0 and not today and not requestMs then return end
  local s = call('HGET', state, 's')
  if not s then return end
  local last, req, tok, day, used, chores = struct.unpack('<dddddd', s)
  if tpm > 0 then tok = tok + delta * 60000 / tpm end
  if today == day then used = used + delta end
  if requestMs then req = req - requestMs end
  call('HSET', state, 's', struct.pack('<dddddd', last, req, tok, day, used, chores))
end

if mode == 'release' then
  call('ZREM', KEYS[4], ARGV[1])
  local delta = -tonumber(ARGV[3])
  local today = math.floor((call('TIME')[1] - ${
    LIMITER_EPOCH_MS / 1000
  }) / 86400)
  for i = 4, 5 do
    local limits = call('HMGET', ARGV[i], 'tpm', 'tpd', 'rpm')
    local hasDay = limits[2] and limits[2] ~= '0'
    local tpm, rpm = tonumber(limits[1] or 0) or 0, tonumber(limits[3] or 0) or 0
    correct(KEYS[2 * i - 7], tpm, delta, hasDay and today, rpm > 0 and 60000 / rpm)
  end
  return 1
end

local flags, delta = tonumber(ARGV[3]), tonumber(ARGV[6])
if flags % 8 >= 4 then call('ZREM', KEYS[4], ARGV[1]) end
if delta ~= 0 then
  correct(KEYS[1], tonumber(ARGV[4]), delta, flags % 2 == 1 and tonumber(ARGV[7]))
  correct(KEYS[3], tonumber(ARGV[5]), delta, flags % 4 >= 2 and tonumber(ARGV[7]))
end
local function count(use)
  local hour = ARGV[8]
  local first = call('HINCRBY', use, hour .. ':${USAGE_KINDS.requests}', ARGV[9])
  if ARGV[10] ~= '0' then call('HINCRBY', use, hour .. ':${USAGE_KINDS.promptTokens}', ARGV[10]) end
  if ARGV[11] ~= '0' then call('HINCRBY', use, hour .. ':${USAGE_KINDS.completionTokens}', ARGV[11]) end
  if ARGV[12] ~= '0' then call('HINCRBY', use, hour .. ':${USAGE_KINDS.errors}', ARGV[12]) end
  if first == tonumber(ARGV[9]) then call('EXPIRE', use, ${USAGE_TTL_S}) end
end
count(KEYS[5])
count(KEYS[7])
return 1
`,
);

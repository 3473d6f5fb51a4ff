import { defineScript, type RedisScript } from "@gateway/shared/redis/script";
import { LIMITER_EPOCH_MS } from "@gateway/shared/keys/limiter_state";
import { STORE_KEY } from "@gateway/shared/keys/record";

/** A lease ends by itself this long after it was taken or renewed: the longest a dead edge holds a slot. */
export const LEASE_MS = 30_000;

/** Told to a caller who has too many requests running: nobody knows when one ends. */
export const CONCURRENCY_WAIT_MS = 1_000;
/** State outlives the longest budget, a day, by a day. */
const STATE_TTL_MS = 48 * 3_600_000;
/** A lease that has run out stays this long so that its request can still be settled once. */
const DEAD_LEASE_MS = 3_600_000;
export const LEASES_TTL_MS = 2 * DEAD_LEASE_MS;
const CHORES_EVERY_MS = 1_800_000;

/**
 * Decides one request, in one step, for a key and its owner.
 *
 * ```
 * KEYS  1 lim:{owner}:<key>   2 lease:{owner}:<key>   3 lim:{owner}   4 lease:{owner}
 * ARGV  1 record key          read only: not in KEYS, where EVALSHA demands write access
 *       2 owner limits key    read only
 *       3 scope   4 model, or empty   5 tokens to reserve   6 lease id, or empty:
 *                               looks whether it would be admitted, takes nothing
 *
 * reply {"unknown"} {"expired"} {"disabled"} {"scope"} {"model"}
 *       {"empty"}     no such key, but no other either: the data is gone
 *       {"ok" | "limited", now, rl, rr, rt, tl, tr, tt, ...}
 *         now         Unix ms of the server
 *         rl rr rt    requests per minute: limit (0: none), remaining, ms until full
 *         tl tr tt    tokens per minute, the same
 *       "ok"      … flags, key tpm, owner tpm
 *         flags       1 key has a daily budget, 2 owner has one,
 *                   4 owner has a limit of concurrency, 8 key has one
 *       "limited" … which, wait
 *         which       "key" or "owner", a colon, "requests" "tokens" "day" "concurrency"
 *         wait        ms until the slowest of the violated limits lets this request pass
 * ```
 *
 * All or nothing: everything is looked at before anything is taken, so a
 * refusal consumes nothing. Of key and owner, the tighter limit is reported.
 * Layout of the state: `shared/keys/limiter_state.ts`.
 *
 * - Requests: GCRA. The arrival time moves one interval (60000/rpm) per request
 *   and may be a minute ahead of now: `rpm` requests pass at once, then one per
 *   interval. With 600 per minute, the 601st of a burst is told to wait 100 ms.
 * - Tokens: the same with weights. A request for more than the bucket holds passes
 *   when the bucket is full; the rest is debt that later requests wait for.
 * - Day: a counter that starts anew at midnight UTC; here too a request larger
 *   than the whole budget passes while nothing of it is used.
 * - Concurrency: leases by expiry. A lease that has run out is not counted, but
 *   stays for an hour, because its request may still be settled.
 *
 * Only the server's clock counts. Where it has gone back, times kept in the state
 * move with it, as if no time had passed, and a lease that seems to last longer than
 * any may is made to end in 30 s: also by a refusal, which is how a slot of a dead
 * edge comes free. Where the clock has gone forward, time has passed: limits are
 * full again, and leases count again from their next renewal on. A hundredth of an
 * interval is forgiven, because sums of fractions are not exact.
 */
export const ADMIT: RedisScript = defineScript(
  "admit",
  `
local call, floor, max, min = redis.call, math.floor, math.max, math.min
local rec = call('HMGET', ARGV[1], 'state', 'expires_at', 'scopes', 'models', 'rpm', 'tpm', 'tpd', 'conc')
if not rec[1] then return {call('GET', '${STORE_KEY}') and 'unknown' or 'empty'} end
local time = call('TIME')
local now = (time[1] - ${LIMITER_EPOCH_MS / 1000}) * 1000 + time[2] / 1000
local function whole(text)
  if not text then return 0 end
  local value = tonumber(text)
  if not (value and value >= 0 and value <= 9007199254740991 and value % 1 == 0) then
    error('corrupt number in the record of a key or an owner')
  end
  return value
end
local expires = whole(rec[2])
if expires > 0 and expires - ${LIMITER_EPOCH_MS} <= now then return {'expired'} end
if rec[1] ~= 'enabled' then return {'disabled'} end
local function lists(text, item)
  return text == item or string.find(',' .. text .. ',', ',' .. item .. ',', 1, true)
end
if not lists(rec[3] or '', ARGV[3]) then return {'scope'} end
if rec[4] and rec[4] ~= '' and ARGV[4] ~= '' and not lists(rec[4], ARGV[4]) then return {'model'} end

local own = call('HMGET', ARGV[2], 'rpm', 'tpm', 'tpd', 'conc')
local want = tonumber(ARGV[5])
local today = floor(now / 86400000)
local wait, which = 0, nil
local rl, rr, rt = 0, 0, 0
local tl, tr, tt = 0, 0, 0

local ends = floor(now) + ${LEASE_MS}
local function mend(leases)
  for _, id in ipairs(call('ZRANGEBYSCORE', leases, '(' .. ends, '+inf')) do
    call('ZADD', leases, ends, id)
  end
end

local function look(who, state, leases, rpm, tpm, tpd, conc)
  local last, req, tok, day, used, chores = 0, 0, 0, 0, 0, 0
  local s = call('HGET', state, 's')
  if s then
    last, req, tok, day, used, chores = struct.unpack('<dddddd', s)
    if last > now then
      req, tok, chores = req - (last - now), tok - (last - now), 0
      -- At once: for a key that is refused, time would stand still otherwise.
      call('HSET', state, 's', struct.pack('<dddddd', now, req, tok, day, used, chores))
    end
  end
  if rpm > 0 then
    local gap = 60000 / rpm
    local base = min(max(now, req), now + 60000)
    local ahead = base + gap - now - 60000
    if ahead > gap / 100 and ahead > wait then wait, which = ahead, who .. ':requests' end
    local left = floor((now + 60000 - base) / gap + 0.01)
    if rl == 0 or left < rr then rl, rr, rt = rpm, left, base - now end
    req = base + gap
  end
  if tpm > 0 and want > 0 then
    local ms = 60000 / tpm
    local base = max(now, tok)
    local ahead = base + min(want, tpm) * ms - now - 60000
    if ahead > 0.001 and ahead > wait then wait, which = ahead, who .. ':tokens' end
    local left = floor((now + 60000 - base) / ms + 0.01)
    if tl == 0 or left < tr then tl, tr, tt = tpm, left, base - now end
    tok = base + want * ms
  end
  if tpd > 0 and want > 0 then
    if day ~= today and day ~= today + 1 then day, used = today, 0 end
    if used + min(want, tpd) > tpd then
      local ahead = (day + 1) * 86400000 - now
      if ahead > wait then wait, which = ahead, who .. ':day' end
    end
    used = used + want
  end
  local running = leases and call('ZCARD', leases)
  if conc > 0 and (running >= conc or last > now) then mend(leases) end
  if conc > 0 and running >= conc and ${CONCURRENCY_WAIT_MS} > wait
    and call('ZCOUNT', leases, now, '+inf') >= conc then
    wait, which = ${CONCURRENCY_WAIT_MS}, who .. ':concurrency'
  end
  return last, req, tok, day, used, chores, running
end

local function take(state, leases, last, req, tok, day, used, chores, running)
  local due = chores <= now
  if leases then
    call('ZADD', leases, ends, ARGV[6])
    if due then call('ZREMRANGEBYSCORE', leases, '-inf', now - ${DEAD_LEASE_MS}) end
    if due or running == 0 then call('PEXPIRE', leases, ${LEASES_TTL_MS}) end
  end
  if due then chores = now + ${CHORES_EVERY_MS} end
  local s = struct.pack('<dddddd', now, req, tok, day, used, chores)
  if floor(now / 60000) == floor(last / 60000) then
    call('HSET', state, 's', s)
  else
    call('HSET', state, 's', s, 'lu', floor(now) + ${LIMITER_EPOCH_MS})
  end
  if due then call('PEXPIRE', state, ${STATE_TTL_MS}) end
end

local krpm, ktpm, ktpd, kconc = whole(rec[5]), whole(rec[6]), whole(rec[7]), whole(rec[8])
local orpm, otpm, otpd, oconc = whole(own[1]), whole(own[2]), whole(own[3]), whole(own[4])
local hasOwner = orpm > 0 or otpm > 0 or otpd > 0 or oconc > 0
local ownerLeases = oconc > 0 and KEYS[4]
local klast, kreq, ktok, kday, kused, kchores, krunning = look('key', KEYS[1], KEYS[2], krpm, ktpm, ktpd, kconc)
local olast, oreq, otok, oday, oused, ochores, orunning
if hasOwner then
  olast, oreq, otok, oday, oused, ochores, orunning = look('owner', KEYS[3], ownerLeases, orpm, otpm, otpd, oconc)
end

if which then
  return {'limited', floor(now) + ${LIMITER_EPOCH_MS}, rl, rr, math.ceil(rt), tl, max(0, tr), math.ceil(tt), which, math.ceil(wait)}
end
if ARGV[6] ~= '' then
take(KEYS[1], KEYS[2], klast, kreq, ktok, kday, kused, kchores, krunning)
if hasOwner then take(KEYS[3], ownerLeases, olast, oreq, otok, oday, oused, ochores, orunning) end
end
local flags = (ktpd > 0 and 1 or 0) + (otpd > 0 and 2 or 0) + (ownerLeases and 4 or 0) + (kconc > 0 and 8 or 0)
if rl > 0 then rr, rt = rr - 1, rt + 60000 / rl end
if tl > 0 then tr, tt = max(0, tr - want), tt + want * 60000 / tl end
return {'ok', floor(now) + ${LIMITER_EPOCH_MS}, rl, rr, math.ceil(rt), tl, tr, math.ceil(tt), flags, ktpm, otpm}
`,
);

/**
 * The Lua scripts that find keys, admit, renew, settle and record failures. They use
 * only Redis' clock.
 */
import { defineScript } from "@gateway/shared/redis/link";
import {
  LAST_USE_DAYS_KEPT,
  LIMITER_EPOCH_MS,
  USAGE_DAYS_KEPT,
  USAGE_KINDS,
} from "@gateway/shared/keys/limiter_state";
import { STORE_KEY } from "@gateway/shared/keys/record";
import { FAILED_REQUESTS } from "@gateway/shared/limits";

/**
 * A lease expires this long after it was taken or renewed, which bounds how long a dead
 * edge holds a slot.
 */
export const LEASE_MS = 30_000;

/**
 * The reported wait when too many requests are running, since it is unknown when one
 * will end.
 */
const CONCURRENCY_WAIT_MS = 1_000;
const STATE_TTL_MS = LAST_USE_DAYS_KEPT * 86_400_000;
/** An expired lease is kept this long so that its request can still be settled once. */
const DEAD_LEASE_MS = 3_600_000;
const LEASES_TTL_MS = 2 * DEAD_LEASE_MS;

/**
 * A video holds its slot this long until its model server has accepted it. No request
 * for a video takes longer.
 */
const VIDEO_START_MS = 15 * 60_000;
/** From then on it holds the slot until it is finished, and at most this long. */
const VIDEO_JOB_MS = 86_400_000;
/** A video that holds no slot any more can still be settled once, for this long. */
const DEAD_VIDEO_MS = 7 * 86_400_000;
/** The reported wait when too many videos are being made: they take minutes. */
const VIDEO_WAIT_MS = 10_000;
const USAGE_TTL_S = USAGE_DAYS_KEPT * 86_400;

/** The server's time: ms since {@link state.LIMITER_EPOCH_MS}, with fractions. */
const NOW = `
local call, floor, max, min = redis.call, math.floor, math.max, math.min
local time = call('TIME')
local now = (time[1] - ${LIMITER_EPOCH_MS / 1000}) * 1000 + time[2] / 1000
`;

export const FIND = defineScript(
  "find",
  `
return {redis.call('GET', ARGV[1]), redis.call('GET', '${STORE_KEY}')}
`,
);

/**
 * Decides requests of one key with the same scope and unit, one after the other, in one
 * step, for the key and its owner.
 *
 * ```
 * KEYS  1 lim:{owner}:<key>   2 lease:{owner}:<key>   3 lim:{owner}   4 lease:{owner}
 *       5 lease:{owner}:<key>:video   6 lease:{owner}:video   only to begin videos
 * ARGV  1 record key          read only: not in KEYS, to which EVALSHA requires write access
 *       2 owner limits key    read only; also has the state of the owner
 *       3 scope, or empty
 *       4 limit of a unit     "images_per_day"; empty: the requests cost tokens
 *       then of each request
 *       model, or empty
 *       tokens to reserve     empty: only the key and its rights are checked
 *       units to reserve      0: not known before it has run
 *       lease id              empty: nothing is taken, the script only decides
 *
 * reply of each request
 *       {"unknown"} {"expired"} {"disabled"} {"scope"} {"model"}
 *       {"empty"}      Redis holds no keys at all: its data was lost
 *       {"ok", models} without tokens to reserve: comma-separated ids, empty: all
 *       {"ok" | "limited", now, rl, rr, rt, tl, tr, tt}
 *         now         Unix ms of the server
 *         rl rr rt    requests per minute: limit (0: none), remaining, ms until full
 *         tl tr tt    tokens per minute, the same
 *       "limited" … and which, wait
 *         which       "key" or "owner", a colon, "requests" "tokens" "day" "concurrency"
 *                     "video_jobs" or the limit of the unit
 *         wait        ms until all of the violated limits admit this request
 * ```
 *
 * All or nothing: everything is checked before anything is taken. The tighter limit of
 * key and owner is reported. Layout of the state: `shared/keys/limiter_state.ts`.
 *
 * - Requests: GCRA, up to a minute ahead: `rpm` pass at once, then one per interval, of
 *   which a hundredth is tolerated, because sums of fractions are not exact.
 * - Tokens: the same with weights. A request larger than the bucket is admitted when
 *   it is full; the rest is debt that later requests wait for.
 * - Day: a counter until midnight UTC; again, any request passes while it is 0.
 * - Concurrency: leases that have not expired. A video's outlasts its request.
 *
 * If the server's clock was set back, the times in the state and of leases are moved
 * back with it, also by refusals: a key that is only refused must recover.
 */
export const ADMIT = defineScript(
  "admit",
  `${NOW}
local replies, unit = {}, ARGV[4]
local function all(...)
  for _ = 5, #ARGV, 4 do replies[#replies + 1] = {...} end
  return replies
end
local rec = call('HMGET', ARGV[1], 'rpm', 'tpm', 'tpd', 'conc', 'video_jobs', unit, 'state', 'expires_at', 'scopes', 'models')
if not rec[7] then return all(call('GET', '${STORE_KEY}') and 'unknown' or 'empty') end
local function whole(text)
  if not text then return 0 end
  local value = tonumber(text)
  if not (value and value >= 0 and value <= 9007199254740991 and value % 1 == 0) then
    error('corrupt number in the record of a key or an owner')
  end
  return value
end
local function lists(text, item)
  return string.find(',' .. text .. ',', ',' .. item .. ',', 1, true)
end
local expires = whole(rec[8])
if expires > 0 and expires - ${LIMITER_EPOCH_MS} <= now then return all('expired') end
local own = call('HMGET', ARGV[2], 'rpm', 'tpm', 'tpd', 'conc', 'video_jobs', unit, 'state')
if rec[7] ~= 'enabled' or own[7] == 'disabled' then return all('disabled') end
if ARGV[3] ~= '' and not lists(rec[9] or '', ARGV[3]) then return all('scope') end
local models = rec[10] or ''

local today = floor(now / 86400000)
local ends = floor(now) + ${LEASE_MS}
-- Of the request that is being decided.
local wait, which, rates

local function refuse(limit, ms)
  if ms > wait then wait, which = ms, limit end
end

-- Returns when the bucket will be full again after this cost has been taken.
local function bucket(limit, perMinute, fullAt, cost, at)
  if perMinute == 0 or cost == 0 then return fullAt end
  local each = 60000 / perMinute
  local base = max(now, fullAt)
  local ahead = base + min(cost, perMinute) * each - now - 60000
  if ahead > each / 100 then refuse(limit, ahead) end
  local left = floor((now + 60000 - base) / each + 0.01)
  if rates[at] == 0 or left < rates[at + 1] then
    rates[at], rates[at + 1], rates[at + 2] = perMinute, left, base - now
  end
  return base + cost * each
end

-- Returns the day, and what is used of its budget after this cost has been taken.
local function budget(limit, perDay, day, used, cost)
  if day ~= today and day ~= today + 1 then day, used = today, 0 end
  if perDay > 0 and (used >= perDay or used + min(cost, perDay) > perDay) then
    refuse(limit, (day + 1) * 86400000 - now)
  end
  return day, used + cost
end

-- Reads the state of the key or the owner. Returns functions that check a request, take it, and write what was taken.
local function open(who, limits, state, leases, videos)
  local rpm, tpm, tpd, conc = whole(limits[1]), whole(limits[2]), whole(limits[3]), whole(limits[4])
  local jobs, perDay, unitDay, made = whole(limits[5]), whole(limits[6]), today, 0
  local last, req, tok, day, used = 0, 0, 0, today, 0
  local function save(at)
    call('HSET', state, 's', struct.pack('<ddddddd', at, req, tok, day, used, rpm, tpm))
  end
  local s = call('HGET', state, 's')
  if s then last, req, tok, day, used = struct.unpack('<ddddd', s) end
  if last > now then
    req, tok = req - (last - now), tok - (last - now)
    save(now)
  end
  if unit ~= '' then
    local u = call('HGET', state, unit)
    if u then unitDay, made = struct.unpack('<dd', u) end
  end
  if who == 'owner' and conc == 0 then leases = nil end
  local running, alive, making = leases and call('ZCARD', leases), nil, 0
  if videos and jobs > 0 then making = call('ZCOUNT', videos, now, '+inf') end
  local taken, after = {}, nil
  local function isFull()
    if running + #taken < conc and last <= now then return false end
    if not alive then
      for _, id in ipairs(call('ZRANGEBYSCORE', leases, '(' .. ends, '+inf')) do
        call('ZADD', leases, ends, id)
      end
      alive = call('ZCOUNT', leases, now, '+inf')
    end
    return alive + #taken >= conc
  end
  local function check(want, units)
    after = {
      bucket(who .. ':requests', rpm, req, 1, 1),
      bucket(who .. ':tokens', tpm, tok, want, 4),
      budget(who .. ':day', want > 0 and tpd or 0, day, used, want)
    }
    if unit ~= '' then after[5], after[6] = budget(who .. ':' .. unit, perDay, unitDay, made, units) end
    if videos and jobs > 0 and making + #taken >= jobs then
      refuse(who .. ':video_jobs', ${VIDEO_WAIT_MS})
    end
    if conc > 0 and isFull() then refuse(who .. ':concurrency', ${CONCURRENCY_WAIT_MS}) end
  end
  local function take(lease)
    req, tok, day, used, unitDay, made = unpack(after, 1, 6)
    taken[#taken + 1] = lease
  end
  local function write()
    if #taken == 0 then return end
    local isFirst = floor(now / 60000) ~= floor(last / 60000)
    save(now)
    if unit ~= '' then call('HSET', state, unit, struct.pack('<dd', unitDay, made)) end
    for _, lease in ipairs(leases and taken or {}) do call('ZADD', leases, ends, lease) end
    if leases and (isFirst or running == 0) then call('PEXPIRE', leases, ${LEASES_TTL_MS}) end
    if not isFirst then return end
    -- The rest is needed only once a minute.
    call('HSET', state, 'lu', floor(now) + ${LIMITER_EPOCH_MS})
    call('PEXPIRE', state, ${STATE_TTL_MS})
    if leases then call('ZREMRANGEBYSCORE', leases, '-inf', now - ${DEAD_LEASE_MS}) end
  end
  return {check = check, take = take, write = write}
end

local sides, begun = {}, {}
local function decide(model, tokens, units, lease)
  if models ~= '' and model ~= '' and not lists(models, model) then return {'model'} end
  if tokens == '' then return {'ok', models} end
  if #sides == 0 then
    sides[1] = open('key', rec, KEYS[1], KEYS[2], KEYS[5])
    for at = 1, 6 do
      if not sides[2] and whole(own[at]) > 0 then sides[2] = open('owner', own, KEYS[3], KEYS[4], KEYS[6]) end
    end
  end
  wait, which, rates = 0, nil, {0, 0, 0, 0, 0, 0}
  local want = tonumber(tokens)
  for _, side in ipairs(sides) do side.check(want, tonumber(units)) end
  local function reply(status, requests, taken, ...)
    local rl, rr, rt, tl, tr, tt = unpack(rates)
    if rl > 0 then rr, rt = rr - requests, rt + requests * 60000 / rl end
    if tl > 0 then tr, tt = max(0, tr - taken), tt + taken * 60000 / tl end
    return {status, floor(now) + ${LIMITER_EPOCH_MS}, rl, rr, math.ceil(rt), tl, tr, math.ceil(tt), ...}
  end
  if which then return reply('limited', 0, 0, which, math.ceil(wait)) end
  if lease ~= '' then
    begun[#begun + 1] = lease
    for _, side in ipairs(sides) do side.take(lease) end
  end
  return reply('ok', 1, want)
end
for at = 5, #ARGV, 4 do
  replies[#replies + 1] = decide(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
for _, side in ipairs(sides) do side.write() end
if #begun == 0 then return replies end
for at = 5, #KEYS do
  call('ZREMRANGEBYSCORE', KEYS[at], '-inf', now - ${DEAD_VIDEO_MS})
  for _, lease in ipairs(begun) do call('ZADD', KEYS[at], floor(now) + ${VIDEO_START_MS}, lease) end
  call('PEXPIRE', KEYS[at], ${VIDEO_JOB_MS + DEAD_VIDEO_MS})
end
return replies
`,
);

/**
 * Renews leases of running requests of one key. A lease that the server has lost is
 * created again: its request still runs and must count. The owner's leases are renewed
 * even if the owner has no limit, because they count once one is set. Returns 1 if the
 * requests must end: the notice that said so may not have reached this edge.
 *
 * ```
 * KEYS  1 lease:{owner}:<key>   2 lease:{owner}
 * ARGV  1 order to stop, read only   then the lease ids
 * ```
 */
export const RENEW = defineScript(
  "renew",
  `${NOW}
for _, leases in ipairs(KEYS) do
  for at = 2, #ARGV do call('ZADD', leases, floor(now) + ${LEASE_MS}, ARGV[at]) end
  call('ZREMRANGEBYSCORE', leases, '-inf', now - ${DEAD_LEASE_MS})
  call('PEXPIRE', leases, ${LEASES_TTL_MS})
end
return call('HMGET', ARGV[1], 'at')[1] and 1 or 0
`,
);

/**
 * Ends admitted requests of one key, hour, model and unit: removes their leases,
 * corrects the reservations to the actual use, counts usage. Idempotent: only the call
 * that removes the lease of a request does the rest for it.
 *
 * ```
 * KEYS  1 lim:{owner}:<key>   2 lease:{owner}:<key>   3 lim:{owner}   4 lease:{owner}
 *       5 use:{owner}:<key>:<yyyymmdd>   6 use:{owner}:<yyyymmdd>
 *       7 lease:{owner}:<key>:video   8 lease:{owner}:video   of a request to begin a video
 * ARGV  1 UTC day of the admissions ("d" of the state), or empty: unknown
 *       2 hour of the usage fields "00".."23", or empty: nothing is counted
 *       3 model, or empty   4 counter of the unit   5 limit of the unit
 *       6 "1": the video has begun, and keeps its slot
 *       then of each request
 *       lease id   "1": settle it even if its lease is lost
 *       tokens used minus tokens reserved   requests to return
 *       requests   prompt tokens   completion tokens   errors, to count
 *       units made, to count   units made minus reserved
 *
 * reply of each request 1 settled, 2 settled without its lease, 0 no such lease
 * ```
 *
 * A video is settled twice: its request, and when it has ended, with KEYS 7 and 8 as
 * KEYS 2 and 4. The correction uses the limits of the last admission; a state that has
 * expired is not recreated. The leases are removed first, because a script that has
 * already written may continue when memory is full.
 */
export const SETTLE = defineScript(
  "settle",
  `${NOW}
local ids, sums, replies = {}, {0, 0, 0, 0, 0, 0, 0, 0}, {}
for at = 7, #ARGV, 10 do
  local reply = call('ZREM', KEYS[2], ARGV[at])
  if reply == 0 and ARGV[at + 1] == '1' then reply = 2 end
  replies[#replies + 1] = reply
  if reply > 0 then
    ids[#ids + 1] = ARGV[at]
    for i = 1, 8 do sums[i] = sums[i] + ARGV[at + 1 + i] end
  end
end
if #ids == 0 then return replies end
call('ZREM', KEYS[4], unpack(ids))
for at = 7, #KEYS do
  for _, id in ipairs(ids) do
    if ARGV[6] == '1' then call('ZADD', KEYS[at], 'XX', floor(now) + ${VIDEO_JOB_MS}, id)
    else call('ZREM', KEYS[at], id) end
  end
end

local tokens, requests, counted, onDay = sums[1], sums[2], sums[3], tonumber(ARGV[1])
local function correct(state)
  local s = call('HGET', state, 's')
  if not s or #s ~= 56 then return end
  local last, req, tok, day, used, rpm, tpm = struct.unpack('<ddddddd', s)
  if rpm > 0 then req = req - requests * 60000 / rpm end
  if tpm > 0 then tok = tok + tokens * 60000 / tpm end
  if not onDay or onDay == day then used = max(0, used + tokens) end
  call('HSET', state, 's', struct.pack('<ddddddd', last, req, tok, day, used, rpm, tpm))
end
local unit, units = ARGV[5], sums[8]
local function correctUnits(state)
  local u = call('HGET', state, unit)
  if not u then return end
  local day, made = struct.unpack('<dd', u)
  if onDay and onDay ~= day then return end
  call('HSET', state, unit, struct.pack('<dd', day, max(0, made + units)))
end
for at = 1, 3, 2 do
  if tokens ~= 0 or requests ~= 0 then correct(KEYS[at]) end
  if units ~= 0 then correctUnits(KEYS[at]) end
end

local hour = ARGV[2]
if hour == '' then return replies end
local model = ARGV[3] == '' and '' or ':' .. ARGV[3]
local kinds = {'${USAGE_KINDS.promptTokens}', '${USAGE_KINDS.completionTokens}', '${USAGE_KINDS.errors}', ARGV[4]}
for _, use in ipairs({KEYS[5], KEYS[6]}) do
  local total = call('HINCRBY', use, hour .. ':${USAGE_KINDS.requests}' .. model, counted)
  if total <= max(1, counted) then call('EXPIRE', use, ${USAGE_TTL_S}) end
  for i, kind in ipairs(kinds) do
    if sums[3 + i] ~= 0 then call('HINCRBY', use, hour .. ':' .. kind .. model, sums[3 + i]) end
  end
end
return replies
`,
);

/**
 * Records requests of one key and day that were refused or failed. The list of a key
 * that was deleted is not made again.
 *
 * ```
 * KEYS  1 use:{owner}:<key>:<yyyymmdd>   2 use:{owner}:<yyyymmdd>   3 failed:{owner}:<key>
 * ARGV  1 record key, read only   2 number of counters
 *       field and count of each counter
 *       the entries of the list, oldest first
 * ```
 */
export const RECORD_FAILED = defineScript(
  "record_failed",
  `
local call = redis.call
local listed = 3 + 2 * ARGV[2]
for at = 1, 2 do
  for i = 3, listed - 1, 2 do call('HINCRBY', KEYS[at], ARGV[i], ARGV[i + 1]) end
  call('EXPIRE', KEYS[at], ${USAGE_TTL_S})
end
if not call('HMGET', ARGV[1], 'state')[1] then return end
call('LPUSH', KEYS[3], unpack(ARGV, listed))
call('LTRIM', KEYS[3], 0, ${FAILED_REQUESTS.listedMax - 1})
call('EXPIRE', KEYS[3], ${FAILED_REQUESTS.daysListed * 86_400})
`,
);

export const EDGE_SCRIPTS = [FIND, ADMIT, RENEW, SETTLE, RECORD_FAILED];

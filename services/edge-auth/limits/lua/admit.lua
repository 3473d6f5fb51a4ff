-- Decides requests of one key with the same scope and unit, one after the other, in one
-- step, for the key and its owner.
--
-- KEYS  1 lim:{owner}:<key>         2 lease:{owner}:<key>
--       3 lim:{owner}               4 lease:{owner}
--       5 lease:{owner}:<key>:video 6 lease:{owner}:video, only to begin videos
-- ARGV  1 record key          read only: not in KEYS, to which EVALSHA requires write
--                             access
--       2 owner limits key    read only; also has the state of the owner
--       3 scope, or empty
--       4 limit of a unit     "images_per_day"; empty: the requests cost tokens
--       5 expected time       Unix ms by the edge's own clock, or empty; earlier than
--                             this server's where its clock has jumped forward
--       6 calendar            the day and the month of budgets: `budget.lua`
--       7 source              by what end users of the key are told apart, as the edge
--                             knows; empty: it knows of none
--       then of each request
--       model, or empty
--       tokens to reserve     empty: only the key and its rights are checked
--       units to reserve      0: not known before it has run
--       lease id              empty: nothing is taken, the script only decides, for no
--                             end user
--       billionths to hold    of budgets of money; empty: the request has no price
--       client's address      32 hexadecimal digits; empty: it is not known
--
-- Returns a reply for each request:
--
--   {"unknown"} {"expired"} {"disabled"} {"scope"} {"model"} {"address"}
--   {"unpriced"}   there is a budget, which would not count a model without a price
--   {"calendar", now}  budgets are set, and the time is not in the calendar
--   {"end_user", source}  the edge has another source than the record of the key
--   {"empty"}      Redis holds no keys at all: its data was lost
--   {"ok", models} without tokens to reserve: comma-separated ids, empty: all
--   {"ok" | "limited", now, then for requests per minute and for tokens per minute:
--     limit (0: none), remaining, ms until nothing of it is used}
--     now          Unix ms of the server
--   "limited" is followed by which limit and a wait:
--     which        "key", "owner" or "user", a colon, "requests" "tokens" "day"
--                  "concurrency" "video_jobs", the limit of the unit, "budget_day"
--                  "budget_month" "budget_total", or "budget_held": the rest is held
--     wait         ms until all of the violated limits admit this request; -1: for ever
--   and, of a budget, by its name, the budget, what is spent, what is held, and when it
--   is reset, in Unix ms (0: never). "ok" is followed by what is held of budgets, if
--   any is set.
--
-- All or nothing: everything is checked before anything is taken. The tighter limit of
-- key and owner is reported. Layout of the state: `shared/keys/limiter_state.ts`.
--
-- - Requests: GCRA, up to a minute ahead: as many as the limit pass at once, then one
--   per interval.
-- - Tokens: the same with weights. A request larger than the bucket is admitted when it
--   is full; the rest is debt that later requests wait for.
-- - Day: a counter until midnight UTC; again, any request passes while it is 0.
-- - Concurrency: leases that have not expired. A video's outlasts its request.
--
-- If the server's clock was set back, the times in the state and of leases are moved
-- back with it, also by refusals: a key that is only refused must recover. If it has
-- jumped forward, leases count that had not expired by the clock of the edge.
--
-- Constants: STORE_KEY LIMITER_EPOCH_MS LEASE_MS LEASES_TTL_MS DEAD_LEASE_MS
-- CONCURRENCY_WAIT_MS STATE_TTL_MS VIDEO_START_MS VIDEO_LEASES_TTL_MS DEAD_VIDEO_MS
-- VIDEO_WAIT_MS BUDGET RECORD END_USER REPLY

local call, floor = redis.call, math.floor
local max, min = math.max, math.min

local MINUTE_MS = 60000
local DAY_MS = 86400000
-- Sums of fractions are not exact, so this part of an interval is tolerated.
local TOLERANCE = 0.01

local FIRST_REQUEST = 8
local ARGS_PER_REQUEST = 6

local record_key, owner_key, scope, unit = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local expected_unix = tonumber(ARGV[5])

local time = call('TIME')
local now = time[1] * 1000 - LIMITER_EPOCH_MS + time[2] / 1000
local now_unix = floor(now) + LIMITER_EPOCH_MS
local today = floor(now / DAY_MS)
local lease_ends = floor(now) + LEASE_MS
-- Leases that end later than this are alive.
local expected = expected_unix and expected_unix - LIMITER_EPOCH_MS or now
local alive_from = min(now, expected)

---------------------------------------------------------------- 1. Load

local function refuse_all(...)
  local replies = {}
  for _ = FIRST_REQUEST, #ARGV, ARGS_PER_REQUEST do
    replies[#replies + 1] = { ... }
  end
  return replies
end

-- The day and the month of budgets; nil where none is set.
local calendar

-- Reads what has been used. `who` is "key", "owner" or "user".
local function load_side(who, limits, state_key, lease_key, video_key)
  local last, requests_full, tokens_full, day, used = 0, 0, 0, today, 0
  local state = call('HGET', state_key, 's')
  if state then
    last, requests_full, tokens_full, day, used = struct.unpack('<ddddd', state)
  end
  local unit_day, unit_used = today, 0
  local unit_state = unit ~= '' and call('HGET', state_key, unit)
  if unit_state then unit_day, unit_used = struct.unpack('<dd', unit_state) end

  local side = {
    who = who,
    limits = limits,
    state_key = state_key,
    -- An owner without a limit is not worth a write for every request; the leases of
    -- long requests are there all the same, once they are renewed.
    lease_key = (who == 'key' or limits.concurrency > 0) and lease_key or nil,
    admitted_at = last,
    requests = { limit = limits.requests_per_minute, full_at = requests_full },
    tokens = { limit = limits.tokens_per_minute, full_at = tokens_full },
    tokens_today = { day = day, used = used },
    units_today = { day = unit_day, used = unit_used },
    leases_taken = {},
    leases_stored = 0,
    videos_running = 0,
    budgets = calendar and BUDGET.load(state_key, limits, calendar, who) or {},
  }
  if side.lease_key then side.leases_stored = call('ZCARD', side.lease_key) end
  if video_key and limits.video_jobs > 0 then
    side.videos_running = call('ZCOUNT', video_key, now, '+inf')
  end
  return side
end

local function save_state(side)
  call('HSET', side.state_key, 's', struct.pack('<ddddddd', now,
    side.requests.full_at, side.tokens.full_at,
    side.tokens_today.day, side.tokens_today.used,
    side.limits.requests_per_minute, side.limits.tokens_per_minute))
end

-- Follows a clock that was set back since the last admission.
local function follow_clock(side)
  local ahead = side.admitted_at - now
  if ahead <= 0 then return end
  side.requests.full_at = side.requests.full_at - ahead
  side.tokens.full_at = side.tokens.full_at - ahead
  save_state(side)
end

---------------------------------------------------------------- 2. Decide

-- Notes that a limit refuses the request. The longest wait is the one to report.
local function refuse(verdict, side, limit, wait, budget)
  if wait > verdict.wait then
    verdict.wait, verdict.refused_by = wait, side.who .. ':' .. limit
    verdict.budget = budget
  end
end

local function check_rate(verdict, side, name, cost)
  local bucket = side[name]
  bucket.next_full_at = bucket.full_at
  if bucket.limit == 0 or cost == 0 then return end
  local interval = MINUTE_MS / bucket.limit
  local base = max(now, bucket.full_at)
  local wait = base + min(cost, bucket.limit) * interval - now - MINUTE_MS
  if wait > interval * TOLERANCE then refuse(verdict, side, name, wait) end
  bucket.next_full_at = base + cost * interval

  local rate = verdict[name]
  local remaining = floor((now + MINUTE_MS - base) / interval + TOLERANCE)
  if rate.limit == 0 or remaining < rate.remaining then
    rate.limit, rate.remaining, rate.reset = bucket.limit, remaining, base - now
  end
end

local function check_budget(verdict, side, budget, name, per_day, cost)
  local day, used = budget.day, budget.used
  -- A budget of tomorrow was begun before the clock was set back over midnight.
  if day ~= today and day ~= today + 1 then day, used = today, 0 end
  if per_day > 0 and (used >= per_day or used + min(cost, per_day) > per_day) then
    refuse(verdict, side, name, (day + 1) * DAY_MS - now)
  end
  budget.next_day, budget.next_used = day, used + cost
end

-- Leases are counted only where those that are stored, expired or not, reach the limit.
local function is_full(side)
  local taken, allowed = #side.leases_taken, side.limits.concurrency
  if side.leases_stored + taken < allowed and side.admitted_at <= now then
    return false
  end
  if not side.leases_alive then
    -- After a clock that was set back, none may last longer than a new one.
    for _, id in ipairs(call('ZRANGEBYSCORE', side.lease_key, '(' .. lease_ends, '+inf')) do
      call('ZADD', side.lease_key, lease_ends, id)
    end
    side.leases_alive = call('ZCOUNT', side.lease_key, alive_from, '+inf')
  end
  return side.leases_alive + taken >= allowed
end

local function check_money(verdict, side, nanos)
  for _, budget in ipairs(side.budgets) do
    local limit, amount = BUDGET.check(budget, nanos, now_unix)
    if limit then
      refuse(verdict, side, limit, amount, budget)
    else
      verdict.hold = min(verdict.hold or nanos, amount)
    end
  end
end

local function check_side(verdict, side, tokens, units)
  local limits = side.limits
  check_rate(verdict, side, 'requests', 1)
  check_rate(verdict, side, 'tokens', tokens)
  local tokens_per_day = tokens > 0 and limits.tokens_per_day or 0
  check_budget(verdict, side, side.tokens_today, 'day', tokens_per_day, tokens)
  if unit ~= '' then
    check_budget(verdict, side, side.units_today, unit, limits.units_per_day, units)
  end
  if KEYS[5] and limits.video_jobs > 0
    and side.videos_running + #side.leases_taken >= limits.video_jobs then
    refuse(verdict, side, 'video_jobs', VIDEO_WAIT_MS)
  end
  if limits.concurrency > 0 and is_full(side) then
    refuse(verdict, side, 'concurrency', CONCURRENCY_WAIT_MS)
  end
end

local function check(sides, tokens, units, nanos)
  local verdict = {
    wait = 0,
    refused_by = nil,
    requests = { limit = 0, remaining = 0, reset = 0 },
    tokens = { limit = 0, remaining = 0, reset = 0 },
  }
  for _, side in ipairs(sides) do
    check_side(verdict, side, tokens, units)
    check_money(verdict, side, nanos)
  end
  return verdict
end

---------------------------------------------------------------- 3. Commit

local function take_budget(budget)
  budget.day, budget.used = budget.next_day, budget.next_used
end

-- Takes what was checked last. Nothing is written before all requests are decided.
local function take(side, lease)
  side.requests.full_at = side.requests.next_full_at
  side.tokens.full_at = side.tokens.next_full_at
  take_budget(side.tokens_today)
  if unit ~= '' then take_budget(side.units_today) end
  table.insert(side.leases_taken, lease)
end

local function commit_side(side)
  if #side.leases_taken == 0 then return end
  save_state(side)
  BUDGET.commit(side.budgets)
  if unit ~= '' and side.who ~= 'user' then
    local budget = side.units_today
    call('HSET', side.state_key, unit, struct.pack('<dd', budget.day, budget.used))
  end
  local lease_key = side.lease_key
  local is_new_minute = floor(now / MINUTE_MS) ~= floor(side.admitted_at / MINUTE_MS)
  if lease_key then
    for _, lease in ipairs(side.leases_taken) do
      call('ZADD', lease_key, lease_ends, lease)
    end
    if is_new_minute or side.leases_stored == 0 then
      call('PEXPIRE', lease_key, LEASES_TTL_MS)
    end
  end
  if not is_new_minute then return end
  -- The rest is needed only once a minute.
  if side.who ~= 'user' then call('HSET', side.state_key, 'lu', now_unix) end
  call('PEXPIRE', side.state_key, side.who == 'user' and END_USER.TTL_MS or STATE_TTL_MS)
  if lease_key then
    call('ZREMRANGEBYSCORE', lease_key, '-inf', now - DEAD_LEASE_MS)
  end
end

-- The slots of videos, which outlast their requests.
local function commit_videos(video_key, leases)
  call('ZREMRANGEBYSCORE', video_key, '-inf', now - DEAD_VIDEO_MS)
  for _, lease in ipairs(leases) do
    call('ZADD', video_key, floor(now) + VIDEO_START_MS, lease)
  end
  call('PEXPIRE', video_key, VIDEO_LEASES_TTL_MS)
end

---------------------------------------------------------------- All of them

local record = RECORD.read(record_key, unit, 'expires_at', 'scopes', 'models',
  'networks', 'end_user')
local state, expires_at = record[RECORD.STATE], record[RECORD.MORE]
local scopes, models = record[RECORD.MORE + 1] or '', record[RECORD.MORE + 2] or ''
local networks = record[RECORD.MORE + 3] or ''
if not state then
  return refuse_all(call('GET', STORE_KEY) and 'unknown' or 'empty')
end
expires_at = RECORD.whole_number(expires_at)
if expires_at > 0 and expires_at - LIMITER_EPOCH_MS <= now then
  return refuse_all('expired')
end
local owner = RECORD.read(owner_key, unit)
if state ~= 'enabled' or owner[RECORD.STATE] == 'disabled' then
  return refuse_all('disabled')
end
if scope ~= '' and not RECORD.list_has(scopes, scope) then return refuse_all('scope') end

local end_user = END_USER.read(record[RECORD.MORE + 4])
local has_budget = end_user.budget_day > 0
  or BUDGET.any(record, RECORD.BUDGETS) or BUDGET.any(owner, RECORD.BUDGETS)
if has_budget then
  calendar = BUDGET.calendar(ARGV[6], now_unix)
  if not calendar then return refuse_all('calendar', now_unix) end
end

-- The key, and the owner if it has limits. Read for the first request that needs them.
local sides
local function load()
  sides = { load_side('key', RECORD.limits(record), KEYS[1], KEYS[2], KEYS[5]) }
  local owner_limits = RECORD.limits(owner)
  if RECORD.has_limit(owner_limits) then
    sides[2] = load_side('owner', owner_limits, KEYS[3], KEYS[4], KEYS[6])
  end
  for _, side in ipairs(sides) do follow_clock(side) end
end

local users = {}

-- Those, and the end user of the request.
local function sides_of(lease)
  local id = end_user.from ~= '' and END_USER.id_in(lease)
  if not id then return sides end
  if not users[id] then
    local state_key = END_USER.state_key(KEYS[1], id)
    users[id] = load_side('user', end_user, state_key)
    follow_clock(users[id])
  end
  return { sides[1], users[id], sides[2] }
end

local admitted, holds = {}, {}

local function take_budgets(taken_by, lease, nanos)
  local words = { string.format('%.0f', nanos) }
  for _, side in ipairs(taken_by) do
    table.insert(words, BUDGET.take(side.budgets, side.who, nanos))
  end
  table.insert(holds, { lease = lease, text = table.concat(words) })
end

local function decide(model, tokens, units, lease, nanos, address)
  if networks ~= '' and not RECORD.is_within(networks, address) then return { 'address' } end
  if models ~= '' and model ~= '' and not RECORD.list_has(models, model) then
    return { 'model' }
  end
  if tokens == '' then return { 'ok', models } end
  if has_budget and nanos == '' then return { 'unpriced' } end
  if lease ~= '' and end_user.from ~= ARGV[7] then return { 'end_user', end_user.from } end
  if not sides then load() end
  local asked = sides_of(lease)
  tokens = tonumber(tokens)
  local verdict = check(asked, tokens, tonumber(units), tonumber(nanos) or 0)
  if not verdict.refused_by and lease ~= '' then
    table.insert(admitted, lease)
    for _, side in ipairs(asked) do take(side, lease) end
    if verdict.hold then take_budgets(asked, lease, verdict.hold) end
  end
  return REPLY.of(verdict, tokens, now_unix)
end

local replies = {}
for at = FIRST_REQUEST, #ARGV, ARGS_PER_REQUEST do
  table.insert(replies,
    decide(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]))
end
if #admitted > 0 then
  for _, side in ipairs(sides) do commit_side(side) end
  for _, side in pairs(users) do commit_side(side) end
  if end_user.from ~= '' then
    END_USER.touch(KEYS[1], users, now, calendar and calendar[1].window)
  end
  for at = 5, #KEYS do commit_videos(KEYS[at], admitted) end
  for _, hold in ipairs(holds) do BUDGET.keep_hold(KEYS[1], hold.lease, hold.text) end
end
return replies

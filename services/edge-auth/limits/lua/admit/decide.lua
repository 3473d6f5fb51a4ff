-- The second part of the script that admits: decides on one request. It takes nothing.
--
-- Constants: CALL LOAD CONCURRENCY_WAIT_MS VIDEO_WAIT_MS MONEY RECORD

local DECIDE = {}

local call, floor = redis.call, math.floor
local max, min = math.max, math.min

local MINUTE_MS = 60000
local DAY_MS = 86400000
-- Sums of fractions are not exact, so this part of an interval is tolerated.
local TOLERANCE = 0.01

-- What the key refuses, whatever was used, or all that was asked; nil: limits decide.
function DECIDE.rights(request)
  local networks, models = LOAD.key.networks or '', LOAD.key.models or ''
  if networks ~= '' and not RECORD.is_within(networks, request.address) then
    return { 'address' }
  end
  local is_listed = models == '' or request.model == ''
    or RECORD.list_has(models, request.model)
  if not is_listed then return { 'model' } end
  if not request.tokens then return { 'ok', models } end
  if LOAD.has_budget and not request.nanos then return { 'unpriced' } end
  local source = LOAD.end_user.from
  if request.lease ~= '' and source ~= CALL.end_user_source then
    return { 'end_user', source }
  end
end

-- Notes that a limit refuses the request. The longest wait is the one to report.
local function refuse(verdict, side, limit, wait, budget)
  if wait > verdict.wait then
    verdict.wait, verdict.refused_by = wait, side.who .. ':' .. limit
    verdict.budget = budget
  end
end

-- Checks what is counted by minute, `requests` or `tokens`.
local function check_rate(verdict, side, name, cost)
  local bucket = side[name]
  bucket.next_full_at = bucket.full_at
  if bucket.limit == 0 or cost == 0 then return end
  local interval = MINUTE_MS / bucket.limit
  local base = max(CALL.now, bucket.full_at)
  local wait = base + min(cost, bucket.limit) * interval - CALL.now - MINUTE_MS
  if wait > interval * TOLERANCE then refuse(verdict, side, name, wait) end
  bucket.next_full_at = base + cost * interval

  local rate = verdict[name]
  local remaining = floor((CALL.now + MINUTE_MS - base) / interval + TOLERANCE)
  if rate.limit == 0 or remaining < rate.remaining then
    rate.limit, rate.remaining, rate.reset = bucket.limit, remaining, base - CALL.now
  end
end

-- Checks what is counted by day. `limit` has its name, what is used of it, how much may
-- be used in a day (0: any amount), and the cost of the request.
local function check_day(verdict, side, limit)
  local count, per_day, cost = limit.count, limit.per_day, limit.cost
  local day, used = count.day, count.used
  -- A count of tomorrow was begun before the clock was set back over midnight.
  if day ~= CALL.today and day ~= CALL.today + 1 then day, used = CALL.today, 0 end
  if per_day > 0 and (used >= per_day or used + min(cost, per_day) > per_day) then
    refuse(verdict, side, limit.name, (day + 1) * DAY_MS - CALL.now)
  end
  count.next_day, count.next_used = day, used + cost
end

-- Leases are counted only where those that are stored, expired or not, reach the limit.
local function is_full(side)
  local taken, allowed = #side.leases_taken, side.limits.concurrency
  if side.leases_stored + taken < allowed and side.admitted_at <= CALL.now then
    return false
  end
  if not side.leases_alive then
    -- After a clock that was set back, none may last longer than a new one.
    local lease_ends = CALL.lease_ends
    local late = call('ZRANGEBYSCORE', side.lease_key, '(' .. lease_ends, '+inf')
    for _, id in ipairs(late) do
      call('ZADD', side.lease_key, lease_ends, id)
    end
    side.leases_alive = call('ZCOUNT', side.lease_key, CALL.alive_from, '+inf')
  end
  return side.leases_alive + taken >= allowed
end

-- Checks the budgets, and lowers what the request may hold to what they have left.
local function check_money(verdict, side, nanos)
  for _, budget in ipairs(side.budgets) do
    local limit, amount = MONEY.check(budget, nanos, CALL.now_unix)
    if limit then
      refuse(verdict, side, limit, amount, budget)
    else
      verdict.hold = min(verdict.hold or nanos, amount)
    end
  end
end

local function check_side(verdict, side, request)
  local limits, tokens, unit = side.limits, request.tokens, CALL.unit
  check_rate(verdict, side, 'requests', 1)
  check_rate(verdict, side, 'tokens', tokens)
  check_day(verdict, side, {
    name = 'day',
    count = side.tokens_today,
    per_day = tokens > 0 and limits.tokens_per_day or 0,
    cost = tokens,
  })
  if unit ~= '' then
    check_day(verdict, side, {
      name = unit,
      count = side.units_today,
      per_day = limits.units_per_day,
      cost = request.units,
    })
  end
  if KEYS[5] and limits.video_jobs > 0
    and side.videos_running + #side.leases_taken >= limits.video_jobs then
    refuse(verdict, side, 'video_jobs', VIDEO_WAIT_MS)
  end
  if limits.concurrency > 0 and is_full(side) then
    refuse(verdict, side, 'concurrency', CONCURRENCY_WAIT_MS)
  end
end

-- Checks the limits of all sides.
function DECIDE.limits(sides, request)
  local verdict = {
    wait = 0,
    refused_by = nil,
    requests = { limit = 0, remaining = 0, reset = 0 },
    tokens = { limit = 0, remaining = 0, reset = 0 },
  }
  for _, side in ipairs(sides) do
    check_side(verdict, side, request)
    check_money(verdict, side, request.nanos or 0)
  end
  return verdict
end

-- The second part of the script that admits: decides on one request. It takes nothing.
--
-- Constants: CALL LOAD CONCURRENCY_WAIT_MS VIDEO_WAIT_MS MONEY RECORD

local call, floor = redis.call, math.floor
local max, min = math.max, math.min

local MINUTE_MS = 60000
local DAY_MS = 86400000
-- Sums of fractions are not exact, so this part of an interval is tolerated.
local TOLERANCE = 0.01

-- The reply that depends on no limit: a refusal of the key, or its models if only these
-- were asked for; nil: limits decide.
local function decide_rights(request)
  local networks, models = LOAD.key.networks, LOAD.key.models
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
local function refuse(verdict, limit, wait)
  if wait > verdict.wait then
    verdict.wait, verdict.refused_by = wait, limit
  end
end

-- Checks what is counted by minute.
local function check_rate(verdict, meter, cost)
  meter.next_full_at = meter.full_at
  if meter.limit == 0 or cost == 0 then return end
  local interval = MINUTE_MS / meter.limit
  local base = max(CALL.now, meter.full_at)
  local wait = base + min(cost, meter.limit) * interval - CALL.now - MINUTE_MS
  if wait > interval * TOLERANCE then refuse(verdict, meter, wait) end
  meter.next_full_at = base + cost * interval
  meter.remaining = floor((CALL.now + MINUTE_MS - base) / interval + TOLERANCE)
  meter.reset = base - CALL.now

  local tightest = verdict[meter.name]
  if not tightest or meter.remaining < tightest.remaining then
    verdict[meter.name] = meter
  end
end

-- Checks what is counted by day.
local function check_day(verdict, meter, cost)
  local day, used, per_day = meter.day, meter.used, meter.per_day
  -- A count of tomorrow was begun before the clock was set back over midnight.
  if day ~= CALL.today and day ~= CALL.today + 1 then day, used = CALL.today, 0 end
  local is_limited = per_day > 0 and (cost > 0 or meter.is_zero_unknown)
  if is_limited and (used >= per_day or used + min(cost, per_day) > per_day) then
    refuse(verdict, meter, (day + 1) * DAY_MS - CALL.now)
  end
  meter.next_day, meter.next_used = day, used + cost
end

-- Leases are counted only where those that are stored, expired or not, reach the limit.
local function is_full(side)
  local taken, allowed = side.taken, side.limits.concurrency
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
    local limit, amount = MONEY().check(budget, nanos)
    if limit then
      refuse(verdict, { who = side.who, name = limit, budget = budget }, amount)
    else
      verdict.hold = min(verdict.hold or nanos, amount)
    end
  end
end

local function check_side(verdict, side, request)
  local limits = side.limits
  check_rate(verdict, side.requests, 1)
  check_rate(verdict, side.tokens, request.tokens)
  check_day(verdict, side.tokens_today, request.tokens)
  if side.units_today then check_day(verdict, side.units_today, request.units) end
  if KEYS[5] and limits.video_jobs > 0
    and side.videos_running + side.taken >= limits.video_jobs then
    refuse(verdict, { who = side.who, name = 'video_jobs' }, VIDEO_WAIT_MS)
  end
  if limits.concurrency > 0 and is_full(side) then
    refuse(verdict, { who = side.who, name = 'concurrency' }, CONCURRENCY_WAIT_MS)
  end
  check_money(verdict, side, request.nanos or 0)
end

-- Checks the limits of all sides. Returns the longest wait and the limit that has it,
-- the tightest meters of requests and of tokens, and what is to be held of budgets;
-- nil: none. There is room for the budgets that its lease is to name.
local function decide_limits(sides, request)
  local verdict = {
    wait = 0,
    refused_by = nil,
    requests = nil,
    tokens = nil,
    hold = nil,
    budgets = nil,
  }
  for _, side in ipairs(sides) do check_side(verdict, side, request) end
  return verdict
end

return {
  rights = decide_rights,
  limits = decide_limits,
}

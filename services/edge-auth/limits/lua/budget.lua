-- Budgets of money, for the scripts that admit and settle: it stands before them.
--
-- A budget counts in a hash of its own for each window, which is named in the key. No
-- job resets it: the next window has another name, and a clock that is set back finds
-- the earlier one again.
--
--   spend:{owner}:<key>:<window>, spend:{owner}:<window>, and of end users of a key
--     s  spent     h  held by running requests
--   hold:{owner}:<key>
--     <lease>    what a running request holds: "1500 key:m202611:5000000000 …", the
--                amount, then whose window (of the "key", "owner" or
--                "user"), its name and the budget
--     !<lease>   the same of one that was charged as lost, and "@" with the time, in ms
--                since LIMITER_EPOCH_MS
--
--   notices:due  a set: "{owner}:<key>:m202611 5000000000 80", a window, its budget and
--                the percent of it that are now spent; without `:<key>` of the owner
--
-- All amounts are billionths of the currency. A budget is below 2^53, where doubles end
-- to hold all integers; counters have 64 bits, and one that has passed 2^53 is above
-- every budget, whatever its last digits are. What is held is never more than a budget.
--
-- Constants: DAY_SPEND_TTL_S USER_SPEND_TTL_S MONTH_SPEND_TTL_S HOLDS_TTL_MS
-- LOST_HOLD_MS

local BUDGET = { NAMES = { 'budget_day', 'budget_month', 'budget_total' } }

local HELD_WAIT_MS = 1000
local TOTAL_WINDOW = 'total'
-- As in `shared/keys/record.ts`.
local DUE_NOTICES = 'notices:due'
-- Percent of a budget at which somebody is told, the highest first.
local TOLD_PERCENTS = { 100, 80, 50 }

local function after_kind(limiter_key) return string.sub(limiter_key, #'lim' + 1) end

function BUDGET.spend_key(limiter_key, window)
  return 'spend' .. after_kind(limiter_key) .. ':' .. window
end

function BUDGET.hold_key(limiter_key) return 'hold' .. after_kind(limiter_key) end

-- Whether a record has any budget.
function BUDGET.is_in(record)
  for _, name in ipairs(BUDGET.NAMES) do
    if record[name] and record[name] ~= '0' then return true end
  end
  return false
end

-- Reads the calendar "20261128:<starts>:<ends>:202611:<starts>:<ends>", in Unix ms. Nil
-- if the time is not in its day and month: its edge has another time than this server.
function BUDGET.calendar(text, now_unix)
  local day, day_starts, day_ends, month, month_starts, month_ends =
    string.match(text, '^(%d+):(%-?%d+):(%d+):(%d+):(%-?%d+):(%d+)$')
  if not day then error('no calendar of budgets') end
  local function has_begun(starts, ends)
    return tonumber(starts) <= now_unix and now_unix < tonumber(ends)
  end
  if not (has_begun(day_starts, day_ends) and has_begun(month_starts, month_ends)) then
    return nil
  end
  return {
    { window = 'd' .. day, ends_at = tonumber(day_ends) },
    { window = 'm' .. month, ends_at = tonumber(month_ends) },
    { window = TOTAL_WINDOW },
  }
end

-- Reads the budgets that are set, and what is spent and held of each. `limits` has them
-- by their names; `who` is "key", "owner" or "user", whose counters are kept for less.
function BUDGET.load(limiter_key, limits, calendar, who)
  local budgets = {}
  for nth, name in ipairs(BUDGET.NAMES) do
    if limits[name] > 0 then
      local key = BUDGET.spend_key(limiter_key, calendar[nth].window)
      local amounts = redis.call('HMGET', key, 's', 'h')
      table.insert(budgets, {
        name = name,
        who = who,
        key = key,
        limit = limits[name],
        window = calendar[nth].window,
        ends_at = calendar[nth].ends_at,
        name_in_hold = string.format(' %s:%s:%.0f', who, calendar[nth].window,
          limits[name]),
        spent = tonumber(amounts[1] or 0),
        held = tonumber(amounts[2] or 0),
        taken = 0,
      })
    end
  end
  return budgets
end

-- What a budget says of a request that would hold `nanos`: which limit refuses it and
-- for how long, or nil and what it may hold. Spent is spent; but what others hold may
-- come back, and a request that nobody competes with may hold what is left.
function BUDGET.check(budget, nanos, now_unix)
  if budget.spent >= budget.limit then
    return budget.name, budget.ends_at and budget.ends_at - now_unix or math.huge
  end
  local left = budget.limit - budget.spent - budget.held
  if budget.held > 0 and nanos > left then return 'budget_held', HELD_WAIT_MS end
  return nil, math.min(nanos, left)
end

-- Takes what a request holds. Returns the budgets as the text of a hold names them.
function BUDGET.take(budgets, nanos)
  local names = ''
  for _, budget in ipairs(budgets) do
    budget.held = budget.held + nanos
    budget.taken = budget.taken + nanos
    names = names .. budget.name_in_hold
  end
  return names
end

local function keep(key, window, who)
  local kind = string.sub(window, 1, 1)
  local day_ttl_s = who == 'user' and USER_SPEND_TTL_S or DAY_SPEND_TTL_S
  if kind == 'd' then redis.call('EXPIRE', key, day_ttl_s) end
  if kind == 'm' then redis.call('EXPIRE', key, MONTH_SPEND_TTL_S) end
end

-- Writes what `take` took.
function BUDGET.commit(budgets)
  for _, budget in ipairs(budgets) do
    local held = redis.call('HINCRBY', budget.key, 'h', budget.taken)
    if held == budget.taken and budget.spent == 0 then
      keep(budget.key, budget.window, budget.who)
    end
  end
end

-- Keeps what requests hold until they are settled: lease, text, lease, text.
function BUDGET.keep_holds(limiter_key, holds)
  if #holds == 0 then return end
  local hold_key = BUDGET.hold_key(limiter_key)
  redis.call('HSET', hold_key, unpack(holds))
  redis.call('PEXPIRE', hold_key, HOLDS_TTL_MS)
end

-- What requests hold, by their leases.
function BUDGET.holds_of(limiter_key, leases)
  local holds = {}
  if #leases == 0 then return holds end
  local texts = redis.call('HMGET', BUDGET.hold_key(limiter_key), unpack(leases))
  for nth, lease in ipairs(leases) do holds[lease] = texts[nth] or nil end
  return holds
end

-- Forgets what requests held that are settled.
function BUDGET.drop_holds(limiter_key, leases)
  if #leases == 0 then return end
  redis.call('HDEL', BUDGET.hold_key(limiter_key), unpack(leases))
end

-- Splits the text of a hold into the amount and the budgets that it names.
function BUDGET.parts(text)
  local amount, budgets = string.match(text, '^(%d+)(.*)$')
  return tonumber(amount), budgets
end

-- Raises what a request holds to `nanos`, as far as each of its budgets has something
-- left. Never lowers it. Returns what it holds then; nil: nothing, it has ended.
function BUDGET.raise(limiter_keys, lease, nanos)
  local hold_key = BUDGET.hold_key(limiter_keys.key)
  local hold = redis.call('HGET', hold_key, lease)
  if not hold then return nil end
  local held = BUDGET.parts(hold)
  local more = nanos - held
  for who, window, limit in string.gmatch(hold, ' (%a+):(%w+):(%d+)') do
    local amounts = redis.call('HMGET', BUDGET.spend_key(limiter_keys[who], window),
      's', 'h')
    more = math.min(more, limit - (amounts[1] or 0) - (amounts[2] or 0))
  end
  if more <= 0 then return held end
  BUDGET.change(limiter_keys, hold, { held = more, spent = 0 })
  local raised = string.gsub(hold, '^%d+', string.format('%.0f', held + more))
  redis.call('HSET', hold_key, lease, raised)
  return held + more
end

-- Keeps what a request was charged as lost until its edge may have settled it, and
-- drops what is older. Requests are lost so seldom that it may read all that is held.
function BUDGET.mark_lost(hold_key, lease, hold, now)
  local holds = redis.call('HGETALL', hold_key)
  for at = 1, #holds, 2 do
    local charged_at = string.match(holds[at + 1], ' @(%d+)$')
    if charged_at and now - charged_at > LOST_HOLD_MS then
      redis.call('HDEL', hold_key, holds[at])
    end
  end
  redis.call('HSET', hold_key, '!' .. lease, string.format('%s @%.0f', hold, now))
end

-- Leaves a notice if what is spent has just reached a threshold: the highest one. A
-- user of Redis who may not write it must still be able to settle requests.
local function tell(limiter_key, window, limit, before, spent)
  for _, percent in ipairs(TOLD_PERCENTS) do
    local threshold = limit * percent / 100
    if spent >= threshold then
      if before >= threshold then return end
      local name = string.sub(after_kind(limiter_key), 2)
      redis.pcall('SADD', DUE_NOTICES, name .. ':' .. window .. ' ' .. limit .. ' '
        .. percent)
      return
    end
  end
end

-- Changes what is spent and held in the windows of the budgets that a hold names.
function BUDGET.change(limiter_keys, text, amounts)
  for who, window, limit in string.gmatch(text, ' (%a+):(%w+):(%d+)') do
    local key = BUDGET.spend_key(limiter_keys[who], window)
    -- An end user who was forgotten meanwhile begins anew.
    local is_gone = who == 'user' and not redis.call('HMGET', key, 'h')[1]
    if amounts.held ~= 0 and not is_gone then
      redis.call('HINCRBY', key, 'h', amounts.held)
    end
    if amounts.spent ~= 0 and not is_gone then
      local spent = redis.call('HINCRBY', key, 's', amounts.spent)
      if spent == amounts.spent then keep(key, window, who) end
      -- Nobody is told of end users, who may be ten thousand.
      if who ~= 'user' then
        tell(limiter_keys[who], window, limit, spent - amounts.spent, spent)
      end
    end
  end
end

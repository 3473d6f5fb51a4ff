-- Budgets of money, for the script that admits: what is left of them, and what requests
-- take. The layout is described in `lua/budget.lua`.
--
-- Constants: BUDGET HOLDS_TTL_MS

local MONEY = {}

local NAMES = { 'budget_day', 'budget_month', 'budget_total' }
local HELD_WAIT_MS = 1000
local TOTAL_WINDOW = 'total'

-- Whether a record has any budget.
function MONEY.is_in(record)
  for _, name in ipairs(NAMES) do
    if record[name] and record[name] ~= '0' then return true end
  end
  return false
end

-- Reads the calendar "20261128:<starts>:<ends>:202611:<starts>:<ends>", in Unix ms. Nil
-- if the time is not in its day and month: its edge has another time than this server.
function MONEY.calendar(text, now_unix)
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
function MONEY.load(limiter_key, limits, calendar, who)
  local budgets = {}
  for nth, name in ipairs(NAMES) do
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
function MONEY.check(budget, nanos, now_unix)
  if budget.spent >= budget.limit then
    return budget.name, budget.ends_at and budget.ends_at - now_unix or math.huge
  end
  local left = budget.limit - budget.spent - budget.held
  if budget.held > 0 and nanos > left then return 'budget_held', HELD_WAIT_MS end
  return nil, math.min(nanos, left)
end

-- Takes what a request holds. Returns the budgets as the text of a hold names them.
function MONEY.take(budgets, nanos)
  local names = ''
  for _, budget in ipairs(budgets) do
    budget.held = budget.held + nanos
    budget.taken = budget.taken + nanos
    names = names .. budget.name_in_hold
  end
  return names
end

-- Writes what `take` took.
function MONEY.commit(budgets)
  for _, budget in ipairs(budgets) do
    local held = redis.call('HINCRBY', budget.key, 'h', budget.taken)
    if held == budget.taken and budget.spent == 0 then
      BUDGET.keep(budget.key, budget.window, budget.who)
    end
  end
end

-- Keeps what requests hold until they are settled: lease, text, lease, text.
function MONEY.keep_holds(limiter_key, holds)
  if #holds == 0 then return end
  local hold_key = BUDGET.hold_key(limiter_key)
  redis.call('HSET', hold_key, unpack(holds))
  redis.call('PEXPIRE', hold_key, HOLDS_TTL_MS)
end

-- Budgets of money, for the script that admits: what is left of them, and what requests
-- take. The layout is described in `lua/budget.lua`.
--
-- Constants: CALL BUDGET

local HELD_WAIT_MS = 1000
local TOTAL_WINDOW = 'total'
-- In the order of their values in a record.
local NAMES = { 'budget_day', 'budget_month', 'budget_total' }

-- The present windows of the budgets, as `read_calendar` has found them.
local windows

-- Reads the calendar "d20261128:<starts>:<ends>:m202611:<ends>", in Unix ms. False if
-- the time is not in its day: its edge has another time than this server.
local function read_calendar()
  local day, day_starts, day_ends, month, month_ends =
    string.match(CALL.calendar, '^(d%d+):(%-?%d+):(%d+):(m%d+):(%d+)$')
  if not day then error('no calendar of budgets') end
  local day_ends_at = tonumber(day_ends)
  if CALL.now_unix < tonumber(day_starts) or CALL.now_unix >= day_ends_at then
    return false
  end
  windows = {
    day = day,
    day_ends_at = day_ends_at,
    month = month,
    month_ends_at = tonumber(month_ends),
  }
  return true
end

-- The present day as budgets count it.
local function day_window() return windows.day end

-- Reads the budgets that are set. `who` is "key", "owner" or "user".
local function load(who, limits, limiter_key)
  local budgets = {}
  local prefix = BUDGET().spend_key(limiter_key, '')
  local function add(nth, window, ends_at)
    local name = NAMES[nth]
    local limit = limits[name]
    if limit == 0 then return end
    local key = prefix .. window
    local amounts = redis.call('HMGET', key, 's', 'h')
    budgets[#budgets + 1] = {
      name = name,
      who = who,
      key = key,
      limit = limit,
      text = limits.values[limits.budgets_from + nth - 1],
      window = window,
      ends_at = ends_at,
      spent = tonumber(amounts[1] or 0),
      held = tonumber(amounts[2] or 0),
      taken = 0,
    }
  end
  add(1, windows.day, windows.day_ends_at)
  add(2, windows.month, windows.month_ends_at)
  add(3, TOTAL_WINDOW)
  return budgets
end

-- What a budget says of a request that would hold `nanos`: which limit refuses it and
-- for how long, or nil and what it may hold. Spent is spent; but what others hold may
-- come back, and a request that nobody competes with may hold what is left.
local function check(budget, nanos)
  if budget.spent >= budget.limit then
    return budget.name, budget.ends_at and budget.ends_at - CALL.now_unix or math.huge
  end
  local left = budget.limit - budget.spent - budget.held
  if budget.held > 0 and nanos > left then return 'budget_held', HELD_WAIT_MS end
  return nil, math.min(nanos, left)
end

-- The budgets of sides as leases name them.
local function names_of(sides)
  if sides.budget_names then return sides.budget_names end
  local names = ''
  for _, side in ipairs(sides) do
    for _, budget in ipairs(side.budgets) do
      names = names .. ' ' .. budget.who .. ':' .. budget.window .. ':' .. budget.text
    end
  end
  sides.budget_names = names
  return names
end

-- Takes what a request holds, which is nothing if there are no budgets any more that
-- its lease names. Returns what is to be kept beside its lease, which says something
-- else; nil: nothing.
local function take(sides, request, verdict)
  local hold = verdict.hold or 0
  for _, side in ipairs(sides) do
    for _, budget in ipairs(side.budgets) do
      budget.held = budget.held + hold
      budget.taken = budget.taken + hold
    end
  end
  local names = names_of(sides)
  local is_same = names == CALL.lease_budgets
  if not is_same then verdict.budgets = names end
  if is_same and hold == request.nanos then return nil end
  return BUDGET().text_of(hold) .. names
end

-- Writes what `take` took.
local function commit(budgets)
  local taken = BUDGET().text_of(budgets[1].taken)
  for _, budget in ipairs(budgets) do
    local held = redis.call('HINCRBY', budget.key, 'h', taken)
    if held == budget.taken and budget.spent == 0 then
      BUDGET().keep(budget.key, budget.window, budget.who)
    end
  end
end

return {
  read_calendar = read_calendar,
  day_window = day_window,
  load = load,
  check = check,
  take = take,
  commit = commit,
}

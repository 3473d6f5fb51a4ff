-- Budgets of money, for the scripts that settle requests and raise what they hold. The
-- layout is described in `lua/budget.lua`.
--
-- Constants: BUDGET HOLDS_TTL_MS LOST_HOLD_MS

-- As in `shared/keys/record.ts`.
local DUE_NOTICES = 'notices:due'
-- Percent of a budget at which somebody is told, the highest first.
local TOLD_PERCENTS = { 100, 80, 50 }
local LOWEST_PERCENT = TOLD_PERCENTS[#TOLD_PERCENTS]

local function mark_of(lease) return '!' .. lease end

-- What is kept of requests beside their leases, by these: the text of what one holds,
-- and of what it was charged as lost; false: nothing.
local function holds_of(limiter_key, leases)
  local holds = {}
  if #leases == 0 then return holds end
  local fields = {}
  for _, lease in ipairs(leases) do
    fields[#fields + 1] = lease
    fields[#fields + 1] = mark_of(lease)
  end
  local texts = redis.call('HMGET', BUDGET.hold_key(limiter_key), unpack(fields))
  for nth, lease in ipairs(leases) do
    holds[lease] = { kept = texts[2 * nth - 1], charged = texts[2 * nth] }
  end
  return holds
end

-- Forgets what requests held that are settled.
local function drop_holds(limiter_key, leases)
  if #leases == 0 then return end
  redis.call('HDEL', BUDGET.hold_key(limiter_key), unpack(leases))
end

-- Keeps what a request was charged as lost until its edge may have settled it.
local function mark_lost(hold_key, lease, hold, now)
  redis.call('HSET', hold_key, mark_of(lease), string.format('%s @%.0f', hold, now))
  redis.call('PEXPIRE', hold_key, HOLDS_TTL_MS)
end

-- Drops what was charged as lost long ago. Requests are lost so seldom that it may read
-- all that is held.
local function drop_old_marks(hold_key, now)
  local holds = redis.call('HGETALL', hold_key)
  for at = 1, #holds, 2 do
    local charged_at = string.match(holds[at + 1], ' @(%d+)$')
    if charged_at and now - charged_at > LOST_HOLD_MS then
      redis.call('HDEL', hold_key, holds[at])
    end
  end
end

-- Leaves a notice if what is spent has just reached a threshold: the highest one. A
-- user of Redis who may not write it must still be able to settle requests.
local function tell(limiter_key, window, limit, before, spent)
  if spent < limit * LOWEST_PERCENT / 100 then return end
  for _, percent in ipairs(TOLD_PERCENTS) do
    local threshold = limit * percent / 100
    if spent >= threshold then
      if before >= threshold then return end
      local name = string.sub(limiter_key, #'lim:' + 1)
      redis.pcall('SADD', DUE_NOTICES, name .. ':' .. window .. ' ' .. limit .. ' '
        .. percent)
      return
    end
  end
end

-- Changes what is spent and held in the windows of the budgets that a hold names.
local function change(limiter_keys, text, amounts)
  local held, more = BUDGET.text_of(amounts.held), BUDGET.text_of(amounts.spent)
  for who, window, limit in string.gmatch(text, ' (%a+):(%w+):(%d+)') do
    local key = BUDGET.spend_key(limiter_keys[who], window)
    -- An end user who was forgotten meanwhile begins anew.
    local is_gone = who == 'user' and not redis.call('HMGET', key, 'h')[1]
    if amounts.held ~= 0 and not is_gone then
      redis.call('HINCRBY', key, 'h', held)
    end
    if amounts.spent ~= 0 and not is_gone then
      local spent = redis.call('HINCRBY', key, 's', more)
      if spent == amounts.spent then BUDGET.keep(key, window, who) end
      -- Nobody is told of end users, who may be ten thousand.
      if who ~= 'user' then
        tell(limiter_keys[who], window, limit, spent - amounts.spent, spent)
      end
    end
  end
end

local SPENDING = {
  mark_of = mark_of,
  holds_of = holds_of,
  drop_holds = drop_holds,
  mark_lost = mark_lost,
  drop_old_marks = drop_old_marks,
  change = change,
}

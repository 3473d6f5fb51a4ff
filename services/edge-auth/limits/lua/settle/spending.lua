-- Budgets of money, for the scripts that settle requests and raise what they hold. The
-- layout is described in `lua/budget.lua`.
--
-- Constants: BUDGET

-- As in `shared/keys/record.ts`.
local DUE_NOTICES = 'notices:due'
-- Percent of a budget at which somebody gets a notice, the highest first.
local NOTICE_PERCENTS = { 100, 80, 50 }
local LOWEST_PERCENT = NOTICE_PERCENTS[#NOTICE_PERCENTS]

-- The highest percent of a budget that what is spent has just reached; nil: none.
local function percent_reached(limit, before, spent)
  if spent < limit * LOWEST_PERCENT / 100 then return nil end
  for _, percent in ipairs(NOTICE_PERCENTS) do
    local threshold = limit * percent / 100
    if spent >= threshold then return before < threshold and percent or nil end
  end
end

-- Leaves a notice about a budget. A user of Redis who may not write it must still be
-- able to settle requests.
local function leave_notice(limiter_key, window, limit_and_percent)
  local name = string.sub(limiter_key, #'lim:' + 1)
  redis.pcall('SADD', DUE_NOTICES, name .. ':' .. window .. ' ' .. limit_and_percent)
end

-- Changes what is spent and held in the windows of the budgets that a hold names.
local function change(limiter_keys, text, amounts)
  local held, more = BUDGET().text_of(amounts.held), BUDGET().text_of(amounts.spent)
  for who, window, limit in string.gmatch(text, ' (%a+):(%w+):(%d+)') do
    local key = BUDGET().spend_key(limiter_keys[who], window)
    -- An end user who was forgotten meanwhile begins anew.
    local is_gone = who == 'user' and not redis.call('HMGET', key, 'h')[1]
    if amounts.held ~= 0 and not is_gone then
      redis.call('HINCRBY', key, 'h', held)
    end
    if amounts.spent ~= 0 and not is_gone then
      local spent = redis.call('HINCRBY', key, 's', more)
      if spent == amounts.spent then BUDGET().keep(key, window, who) end
      -- There are no notices of end users: there may be ten thousand of them.
      local percent = who ~= 'user'
        and percent_reached(limit, spent - amounts.spent, spent)
      if percent then
        leave_notice(limiter_keys[who], window, limit .. ' ' .. percent)
      end
    end
  end
end

return {
  change = change,
}

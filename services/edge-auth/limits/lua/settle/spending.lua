-- Budgets of money, for the scripts that settle requests and raise what they hold. The
-- layout is described in `lua/budget.lua`.
--
-- Constants: BUDGET

-- As in `shared/keys/record.ts`.
local DUE_NOTICES = 'notices:due'
-- Percent of a budget at which somebody gets a notice, the highest first.
local NOTICE_PERCENTS = { 100, 80, 50 }
local LOWEST_PERCENT = NOTICE_PERCENTS[#NOTICE_PERCENTS]

-- Leaves a notice if what is spent has just reached a threshold: the highest one. A
-- user of Redis who may not write it must still be able to settle requests.
local function tell(limiter_key, window, limit, before, spent)
  if spent < limit * LOWEST_PERCENT / 100 then return end
  for _, percent in ipairs(NOTICE_PERCENTS) do
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
      if who ~= 'user' then
        tell(limiter_keys[who], window, limit, spent - amounts.spent, spent)
      end
    end
  end
end

return {
  change = change,
}

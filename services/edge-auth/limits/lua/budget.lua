-- Where budgets of money are counted, for the scripts that admit, settle and raise what
-- a request holds: it stands before their parts `admit/money` and `settle/spending`.
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
-- Constants: DAY_SPEND_TTL_S USER_SPEND_TTL_S MONTH_SPEND_TTL_S

local function after_kind(limiter_key) return string.sub(limiter_key, #'lim' + 1) end

local function spend_key(limiter_key, window)
  return 'spend' .. after_kind(limiter_key) .. ':' .. window
end

local function hold_key(limiter_key) return 'hold' .. after_kind(limiter_key) end

-- Splits the text of a hold into the amount and the budgets that it names.
local function parts(text)
  local amount, budgets = string.match(text, '^(%d+)(.*)$')
  return tonumber(amount), budgets
end

-- Keeps what was counted for as long as its kind of window is kept.
local function keep(key, window, who)
  local kind = string.sub(window, 1, 1)
  local day_ttl_s = who == 'user' and USER_SPEND_TTL_S or DAY_SPEND_TTL_S
  if kind == 'd' then redis.call('EXPIRE', key, day_ttl_s) end
  if kind == 'm' then redis.call('EXPIRE', key, MONTH_SPEND_TTL_S) end
end

local BUDGET = {
  spend_key = spend_key,
  hold_key = hold_key,
  parts = parts,
  keep = keep,
}

-- Where budgets of money are counted, for the scripts that admit, settle and raise what
-- a request holds: it stands before their parts `admit/money` and `settle/spending`.
--
-- A budget counts in a hash of its own for each window, which is named in the key. No
-- job resets it: the next window has another name, and a clock that is set back finds
-- the earlier one again.
--
--   spend:{owner}:<key>:<window>, spend:{owner}:<window>, and of end users of a key
--     s  spent     h  held by running requests
--   a lease      ends with what its request holds, so that nothing else is written:
--                "…~1500 key:m202611:5000000000 …", the amount, then whose window (of
--                the "key", "owner" or "user"), its name and the budget
--   hold:{owner}:<key>
--     <lease>    the same text, where that of the lease is wrong or missing: its edge
--                knew no budgets or others, less was left, it holds more by now, or its
--                lease was removed
--     !<lease>   the same of one that was charged as lost, and "@" with the time, in ms
--                since LIMITER_EPOCH_MS
--
--   notices:due  a set: "{owner}:<key>:m202611 5000000000 80", a window, its budget and
--                the percent of it that are now spent; without `:<key>` of the owner
--
-- All amounts are billionths of the currency. A budget is below 2^53: up to there, a
-- double holds every integer. Counters have 64 bits, and one that has passed 2^53 is
-- above every budget, whatever its last digits are. What is held is never more than a
-- budget.
--
-- Constants: DAY_SPEND_TTL_S USER_SPEND_TTL_S MONTH_SPEND_TTL_S HOLDS_TTL_MS LEASE

local function after_kind(limiter_key) return string.sub(limiter_key, #'lim' + 1) end

local function spend_key(limiter_key, window)
  return 'spend' .. after_kind(limiter_key) .. ':' .. window
end

-- An amount for a command, which would be slower with a number.
local function text_of(amount) return string.format('%d', amount) end

local function hold_key(limiter_key) return 'hold' .. after_kind(limiter_key) end

local function lease_key(limiter_key) return 'lease' .. after_kind(limiter_key) end

-- Keeps what requests hold beside their leases: lease, text, lease, text.
local function keep_holds(limiter_key, holds)
  local key = hold_key(limiter_key)
  redis.call('HSET', key, unpack(holds))
  redis.call('PEXPIRE', key, HOLDS_TTL_MS)
end

-- Removes the leases of a key that end before a time, and keeps what they say.
local function drop_dead_leases(limiter_key, before)
  local key = lease_key(limiter_key)
  local dead = redis.call('ZRANGEBYSCORE', key, '-inf', before)
  for _, lease in ipairs(dead) do
    local text = string.sub(lease, 1, 1) ~= '!' and LEASE.hold_in(lease)
    local is_kept = text and redis.call('HEXISTS', hold_key(limiter_key), lease) == 1
    if text and not is_kept then keep_holds(limiter_key, { lease, text }) end
    redis.call('ZREM', key, lease)
  end
end

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

return {
  spend_key = spend_key,
  hold_key = hold_key,
  lease_key = lease_key,
  keep_holds = keep_holds,
  text_of = text_of,
  drop_dead_leases = drop_dead_leases,
  parts = parts,
  keep = keep,
}

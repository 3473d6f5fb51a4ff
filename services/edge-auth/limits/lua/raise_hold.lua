-- Lets a running request hold more of budgets, as far as they have something left. The
-- amount is what it is to hold in all, so a call that is repeated changes nothing.
--
-- KEYS  1 lim:{owner}:<key>   2 lim:{owner}
-- ARGV  1 lease id   2 billionths to hold
--
-- Returns the billionths that it holds; nil: it has ended, or was charged as lost.
--
-- Constants: BUDGET END_USER LEASE SPENDING

-- Raises what a request holds to `nanos`, as far as each of its budgets has something
-- left. Never lowers it. Returns what it holds then; nil: nothing, it has ended.
local function raise(limiter_keys, lease, nanos)
  local hold_key = BUDGET().hold_key(limiter_keys.key)
  local hold = redis.call('HGET', hold_key, lease)
  if not hold and redis.call('ZSCORE', BUDGET().lease_key(limiter_keys.key), lease) then
    hold = LEASE.hold_in(lease)
  end
  if not hold then return nil end
  local held = BUDGET().parts(hold)
  local more = nanos - held
  for who, window, limit in string.gmatch(hold, ' (%a+):(%w+):(%d+)') do
    local amounts = redis.call('HMGET', BUDGET().spend_key(limiter_keys[who], window),
      's', 'h')
    more = math.min(more, limit - (amounts[1] or 0) - (amounts[2] or 0))
  end
  if more <= 0 then return held end
  SPENDING().change(limiter_keys, hold, { held = more, spent = 0 })
  local raised = string.gsub(hold, '^%d+', string.format('%.0f', held + more))
  BUDGET().keep_holds(limiter_keys.key, { lease, raised })
  return held + more
end

local limiter_keys = END_USER().limiter_keys(KEYS[1], KEYS[2], ARGV[1])
return raise(limiter_keys, ARGV[1], tonumber(ARGV[2]))

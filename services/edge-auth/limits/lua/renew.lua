-- Renews leases of running requests of one key. A lease that the server has lost is
-- created again: its request still runs and must count, unless it was already charged
-- as that of a lost edge (`settle.lua`). What it held of budgets was lost with it; that
-- is kept beside the new one. The owner's leases are renewed even if the owner has no
-- limit, because they count once one is set.
--
-- KEYS  1 lease:{owner}:<key>   2 lease:{owner}
-- ARGV  1 order to stop, read only   then the lease ids
--
-- Returns 1 if the requests must end: the notice that said so may not have reached this
-- edge. Otherwise 0.
--
-- Constants: LIMITER_EPOCH_MS LEASE_MS DEAD_LEASE_MS LEASES_TTL_MS BUDGET LEASE

local call = redis.call

local time = call('TIME')
local now = time[1] * 1000 - LIMITER_EPOCH_MS + time[2] / 1000

local limiter_key = 'lim' .. string.sub(KEYS[1], #'lease' + 1)

-- Keeps that a request holds nothing, if its lease says something else.
local function forget_hold(lease)
  if not LEASE.hold_in(lease) then return end
  local texts = call('HMGET', BUDGET().hold_key(limiter_key), lease,
    LEASE.mark_of(lease))
  if texts[1] or texts[2] then return end
  BUDGET().keep_holds(limiter_key, { lease, '0' })
end

for nth, lease_key in ipairs(KEYS) do
  for at = 2, #ARGV do
    local lease = ARGV[at]
    local is_new = call('ZADD', lease_key, math.floor(now) + LEASE_MS, lease) == 1
    if is_new and call('ZSCORE', KEYS[1], LEASE.mark_of(lease)) then
      call('ZREM', lease_key, lease)
    elseif is_new and nth == 1 then
      forget_hold(lease)
    end
  end
  call('PEXPIRE', lease_key, LEASES_TTL_MS)
end
BUDGET().drop_dead_leases(limiter_key, now - DEAD_LEASE_MS)
call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - DEAD_LEASE_MS)
return call('HMGET', ARGV[1], 'at')[1] and 1 or 0

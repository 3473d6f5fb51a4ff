-- Renews leases of running requests of one key. A lease that the server has lost is
-- created again: its request still runs and must count, unless it was already charged
-- as that of a lost edge (`settle.lua`). The owner's leases are renewed even if the
-- owner has no limit, because they count once one is set.
--
-- KEYS  1 lease:{owner}:<key>   2 lease:{owner}
-- ARGV  1 order to stop, read only   then the lease ids
--
-- Returns 1 if the requests must end: the notice that said so may not have reached this
-- edge. Otherwise 0.
--
-- Constants: LIMITER_EPOCH_MS LEASE_MS DEAD_LEASE_MS LEASES_TTL_MS

local call = redis.call

local time = call('TIME')
local now = time[1] * 1000 - LIMITER_EPOCH_MS + time[2] / 1000

for _, lease_key in ipairs(KEYS) do
  for at = 2, #ARGV do
    local is_new = call('ZADD', lease_key, math.floor(now) + LEASE_MS, ARGV[at])
    if is_new == 1 and call('ZSCORE', KEYS[1], '!' .. ARGV[at]) then
      call('ZREM', lease_key, ARGV[at])
    end
  end
  call('ZREMRANGEBYSCORE', lease_key, '-inf', now - DEAD_LEASE_MS)
  call('PEXPIRE', lease_key, LEASES_TTL_MS)
end
return call('HMGET', ARGV[1], 'at')[1] and 1 or 0

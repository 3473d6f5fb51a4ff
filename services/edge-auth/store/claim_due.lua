-- Takes members of a list that are due: no other edge gets them before they are due
-- again.
--
-- KEYS  1 the list, a sorted set by time
-- ARGV  1 how many at most  2 ms until they are due again
--
-- Returns the members.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, member in ipairs(due) do
  redis.call('ZADD', KEYS[1], now + ARGV[2], member)
end
return due

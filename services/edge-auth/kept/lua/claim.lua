-- Takes answers that somebody has to look after: no other edge gets them before they
-- are due again.
--
-- KEYS  1 kept:due
-- ARGV  1 how many at most  2 ms until they are due again
--
-- Returns the answers, as `<owner id>:<request id>`.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
for _, answer in ipairs(due) do
  redis.call('ZADD', KEYS[1], now + ARGV[2], answer)
end
return due

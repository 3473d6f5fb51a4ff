-- Says when answers are due to be looked after.
--
-- KEYS  1 kept:due
-- ARGV  1 ms until they are due  2 … the answers, as `<owner id>:<request id>`

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

for at = 2, #ARGV do
  redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[at])
end
return #ARGV - 1

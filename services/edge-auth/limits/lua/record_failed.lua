-- Records requests of one key and day that were refused, that failed or were slow.
--
-- KEYS  1 use:{owner}:<key>:<yyyymmdd>  2 use:{owner}:<yyyymmdd>
--       3 requests:{owner}  4 logged:accounts
-- ARGV  1 owner id
--       2 rows that the log of an owner has at most
--       3 ms for which a row is kept
--       4 number of counters
--       field and count of each counter
--       the rows of the log, oldest first
--
-- Constants: USAGE_TTL_S

local call = redis.call

local FIRST_COUNTER = 5
local first_row = FIRST_COUNTER + 2 * ARGV[4]

if first_row > FIRST_COUNTER then
  for _, usage_key in ipairs({ KEYS[1], KEYS[2] }) do
    for at = FIRST_COUNTER, first_row - 1, 2 do
      call('HINCRBY', usage_key, ARGV[at], ARGV[at + 1])
    end
    call('EXPIRE', usage_key, USAGE_TTL_S)
  end
end
for at = first_row, #ARGV do
  call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[2], '*', 'row', ARGV[at])
end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local gone = string.format('%.0f', now - ARGV[3])
call('XTRIM', KEYS[3], 'MINID', '~', gone)
call('PEXPIRE', KEYS[3], ARGV[3])
call('ZADD', KEYS[4], now, ARGV[1])
call('ZREMRANGEBYSCORE', KEYS[4], '-inf', '(' .. gone)

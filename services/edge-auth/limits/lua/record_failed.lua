-- Records requests of one key and day that were refused or failed. The list of a key
-- that was deleted is not made again.
--
-- KEYS  1 use:{owner}:<key>:<yyyymmdd>  2 use:{owner}:<yyyymmdd>
--       3 failed:{owner}:<key>
-- ARGV  1 record key, read only
--       2 number of counters
--       field and count of each counter
--       the entries of the list, oldest first
--
-- Constants: USAGE_TTL_S LISTED_MAX LISTED_TTL_S

local call = redis.call

local FIRST_COUNTER = 3
local first_entry = FIRST_COUNTER + 2 * ARGV[2]

for _, usage_key in ipairs({ KEYS[1], KEYS[2] }) do
  for at = FIRST_COUNTER, first_entry - 1, 2 do
    call('HINCRBY', usage_key, ARGV[at], ARGV[at + 1])
  end
  call('EXPIRE', usage_key, USAGE_TTL_S)
end
if not call('HMGET', ARGV[1], 'state')[1] then return end
call('LPUSH', KEYS[3], unpack(ARGV, first_entry))
call('LTRIM', KEYS[3], 0, LISTED_MAX - 1)
call('EXPIRE', KEYS[3], LISTED_TTL_S)

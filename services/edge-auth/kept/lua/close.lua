-- Ends the record of an answer that runs, or removes it. Idempotent.
--
-- KEYS  1 kept:{owner}:<request id>   2 kept:{owner}   3 kept:{owner}:bytes
--       4 kept:due
-- ARGV  1 request id      2 ms until it expires, from now; 0: it is removed
--       3 bytes it has    4 "1": its idempotency key may be used again
--       5 name of the answer among those that are due: with its record, it expires
--       then names and values of fields of the record
--
-- Returns 1: done, 0: it had ended before, or there is none.

local call = redis.call
local RECORD, INDEX, BYTES, DUE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FIRST_FIELD = 6
local id, lasts = ARGV[1], tonumber(ARGV[2])

local state, once = unpack(call('HMGET', RECORD, 'state', 'once'))
if not state or (lasts > 0 and state ~= 'running') then return 0 end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local bytes = call('HGET', BYTES, id)
if bytes then
  call('HINCRBY', BYTES, 'all', ARGV[3] - bytes)
  call('HSET', BYTES, id, ARGV[3])
end
if lasts == 0 then
  call('DEL', RECORD)
  call('HDEL', BYTES, id)
  call('ZREM', INDEX, id)
else
  call('HSET', RECORD, unpack(ARGV, FIRST_FIELD))
  call('PEXPIRE', RECORD, lasts)
  call('ZADD', INDEX, now + lasts, id)
  call('ZADD', DUE, now + lasts, ARGV[5])
  for _, name in ipairs({ INDEX, BYTES }) do
    if call('PTTL', name) < lasts then call('PEXPIRE', name, lasts) end
  end
end
if once ~= '' then
  if lasts == 0 or ARGV[4] == '1' then
    if call('GET', once) == id then call('DEL', once) end
  else
    call('PEXPIRE', once, lasts)
  end
end
return 1

-- Opens the record of an answer that is to be kept, unless the key has sent a request
-- with the same idempotency key before. Forgets first what has expired.
--
-- KEYS  1 kept:{owner}:<request id>   2 kept:{owner}   3 kept:{owner}:bytes
--       4 kept:due
--       5 kept:{owner}:once:<key id>:<digest>, only with an idempotency key
-- ARGV  1 request id       2 digest of the body    3 ms until it expires
--       4 bytes to reserve 5 bytes that the account may have
--       6 beginning of the names of records: kept:{owner}:
--       7 name of the answer among those that are due
--       8 ms until it is due: its edge may be killed at once
--       then names and values of further fields of the record
--
-- Returns {"new"}, {"repeat", request id} if the body is the same, {"mismatch"} if it
-- is not, {"full"} if the account has no room.

local call = redis.call
local RECORD, INDEX, BYTES, DUE, ONCE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FIRST_FIELD, EXPIRED_MAX = 9, 100
local id, digest, lasts = ARGV[1], ARGV[2], tonumber(ARGV[3])

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if ONCE then
  local first = call('GET', ONCE)
  local body = first and call('HGET', ARGV[6] .. first, 'body')
  if body then
    if body == digest then return { 'repeat', first } end
    return { 'mismatch' }
  end
end

for _, expired in ipairs(call('ZRANGEBYSCORE', INDEX, '-inf', now, 'LIMIT', 0,
  EXPIRED_MAX)) do
  local bytes = call('HGET', BYTES, expired)
  -- Not negated: of 0, that would be -0, which Redis does not take for a number.
  if bytes then call('HINCRBY', BYTES, 'all', 0 - bytes) end
  call('HDEL', BYTES, expired)
  call('ZREM', INDEX, expired)
end
local all = tonumber(call('HGET', BYTES, 'all') or '0')
if all + ARGV[4] > tonumber(ARGV[5]) then return { 'full' } end

call('HSET', RECORD, 'state', 'running', 'body', digest, 'once', ONCE or '')
call('HSET', RECORD, unpack(ARGV, FIRST_FIELD))
call('PEXPIRE', RECORD, lasts)
call('ZADD', INDEX, now + lasts, id)
call('ZADD', DUE, now + ARGV[8], ARGV[7])
call('HSET', BYTES, id, ARGV[4])
call('HINCRBY', BYTES, 'all', ARGV[4])
-- The index and the counts last as long as any of the records.
for _, name in ipairs({ INDEX, BYTES }) do
  if call('PTTL', name) < lasts then call('PEXPIRE', name, lasts) end
end
if ONCE then call('SET', ONCE, id, 'PX', lasts) end
return { 'new' }

-- Adds to the record of an answer that runs what its request has reserved. A record
-- that was removed meanwhile stays removed.
--
-- KEYS  1 kept:{owner}:<request id>
-- ARGV  names and values of fields of the record
--
-- Returns 1: done, 0: there is no such record, or it has ended.

if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1

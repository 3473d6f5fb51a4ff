-- Takes notices whose time has come, so that no other process delivers them meanwhile.
--
-- KEYS  1 notices:outbox
-- ARGV  1 now, in Unix ms  2 how many at most  3 until when they are taken
-- Reply the notices

local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, notice in ipairs(due) do redis.call('ZADD', KEYS[1], ARGV[3], notice) end
return due

-- Notes something once: in the audit log of its account, and to be delivered.
--
-- KEYS  1 noticed:<digest>  2 notices:due  3 audit:{account}  4 notices:outbox
-- ARGV  1 ms for which it is remembered
--       2 what an edge has left in KEYS 2 about it; empty: nothing
--       3 what is to be delivered; empty: nobody is to be told
--       4 when that is to be tried first, in Unix ms
--       then the entry, as XADD takes it
-- Reply 1: it is new. 0: it was noted before
--
-- Constants: AUDIT_ENTRIES_MAX

local call = redis.call
local FIRST_FIELD = 5

if ARGV[2] ~= '' then call('SREM', KEYS[2], ARGV[2]) end
if not call('SET', KEYS[1], '1', 'NX', 'PX', ARGV[1]) then return 0 end
call('XADD', KEYS[3], 'MAXLEN', '~', AUDIT_ENTRIES_MAX, '*',
  unpack(ARGV, FIRST_FIELD))
if ARGV[3] ~= '' then call('ZADD', KEYS[4], ARGV[4], ARGV[3]) end
return 1

-- Writes the state of a job: a new one, or one that has not ended and was not deleted.
--
-- KEYS  1 job:{owner}:<id>  2 jobs:{owner}, only of a new job
-- ARGV  1 status  2 job  3 when it expires, Unix ms
--       4 id  5 created at ms  6 ms that jobs are kept, only of a new job
--
-- Returns 1: written, 0: not.

local call = redis.call
local job_key, index_key = KEYS[1], KEYS[2]

local status = call('HGET', job_key, 'status')
local is_over = status == 'completed' or status == 'failed'
local is_new = index_key ~= nil
if not is_new and (not status or is_over) then return 0 end
call('HSET', job_key, 'status', ARGV[1], 'job', ARGV[2])
call('PEXPIREAT', job_key, ARGV[3])
if not is_new then return 1 end
call('ZADD', index_key, ARGV[5], ARGV[4])
call('ZREMRANGEBYSCORE', index_key, '-inf', '(' .. ARGV[5] - ARGV[6])
call('PEXPIRE', index_key, ARGV[6])
return 1

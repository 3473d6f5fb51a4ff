-- Takes one from a rate. GCRA, as the edges count requests: the one number that is
-- stored is the time when everything taken is paid off.
--
-- KEYS  1 try:<digest> of the rate's name
-- ARGV  1 how many at once
--       2 milliseconds in which as many are paid off
-- Reply milliseconds to wait; 0 when one was taken

local call = redis.call

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local per_ms = tonumber(ARGV[2])
local paid_at_ms = tonumber(call('HGET', KEYS[1], 'paid')) or now_ms
local next_ms = math.max(paid_at_ms, now_ms) + per_ms / tonumber(ARGV[1])
if next_ms - now_ms > per_ms then return math.ceil(next_ms - now_ms - per_ms) end
call('HSET', KEYS[1], 'paid', string.format('%.3f', next_ms))
call('PEXPIRE', KEYS[1], math.ceil(next_ms - now_ms))
return 0

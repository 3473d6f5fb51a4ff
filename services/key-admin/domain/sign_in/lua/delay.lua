-- Takes one attempt on an account: the first ones are free, then the waits double.
--
-- KEYS  1 try:<digest> of the account, or of a device that it signed in from
-- Reply milliseconds to wait; 0 when the attempt was taken
--
-- Constants: FREE_ATTEMPTS WAIT_MS WAIT_MS_MAX FORGET_S

local call = redis.call

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local state = call('HMGET', KEYS[1], 'failed', 'until')
local left_ms = (tonumber(state[2]) or 0) - now_ms
if left_ms > 0 then return left_ms end

local failed = (tonumber(state[1]) or 0) + 1
local beyond = failed - FREE_ATTEMPTS
local pause_ms = 0
if beyond >= 0 then pause_ms = math.min(WAIT_MS * 2 ^ beyond, WAIT_MS_MAX) end
local until_ms = string.format('%.0f', now_ms + pause_ms)
call('HSET', KEYS[1], 'failed', failed, 'until', until_ms)
call('EXPIRE', KEYS[1], FORGET_S)
return 0

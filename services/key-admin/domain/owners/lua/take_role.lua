-- Makes an operator a mere owner, unless nobody else is an operator.
--
-- KEYS  1 operators
-- ARGV  1 owner id
-- Reply 1, also if the owner was no operator; 0 for the last operator, who stays one

local call = redis.call

local is_operator = call('ZSCORE', KEYS[1], ARGV[1])
if is_operator and call('ZCARD', KEYS[1]) == 1 then return 0 end
call('ZREM', KEYS[1], ARGV[1])
return 1

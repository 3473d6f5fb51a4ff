-- Reads whose a key is, and whether Redis holds any keys at all.
--
-- ARGV  1 hash:<sha256>  2 deleted:<sha256>
--
-- Returns {"<key id>:<owner id>" or nil, name of the set of data or nil, the same pair
-- of a key that was deleted or nil}.
--
-- Constants: STORE_KEY

local pair = redis.call('GET', ARGV[1])
local deleted = not pair and redis.call('GET', ARGV[2])
return { pair, redis.call('GET', STORE_KEY), deleted }

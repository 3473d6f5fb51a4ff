-- Reads whose a key is, and whether Redis holds any keys at all.
--
-- ARGV  1 hash:<sha256>
--
-- Returns {"<key id>:<owner id>" or nil, name of the set of data or nil}.
--
-- Constants: STORE_KEY

return { redis.call('GET', ARGV[1]), redis.call('GET', STORE_KEY) }

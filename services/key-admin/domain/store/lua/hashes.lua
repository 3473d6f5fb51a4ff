-- Reads hashes of one account together, since a page may need thousands.
--
-- KEYS  key:{owner}:… or use:{owner}:…, any number of them
-- ARGV  the fields to read; without any, all
--
-- Returns a list for each hash: the values of the fields, or field, value, field, …

local hashes = {}
for at, key in ipairs(KEYS) do
  if #ARGV == 0 then
    hashes[at] = redis.call('HGETALL', key)
  else
    hashes[at] = redis.call('HMGET', key, unpack(ARGV))
  end
end
return hashes

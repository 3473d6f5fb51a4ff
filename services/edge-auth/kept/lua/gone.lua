-- Says which records there are no more.
--
-- KEYS  1 … kept:{owner}:<request id>
--
-- Returns their places in KEYS.

local gone = {}
for place, name in ipairs(KEYS) do
  if not redis.call('HGET', name, 'state') then gone[#gone + 1] = place end
end
return gone

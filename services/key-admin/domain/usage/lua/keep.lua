-- Keeps the counters of a UTC day that has ended, and adds up the hours of an old one.
-- Called again, it changes nothing.
--
-- KEYS  use:{owner}:…, any number of them, of one day and one account
-- ARGV  1 s after which they are gone
--       2 `add` adds up the hours: `13:req@chat:m` and `14:req@chat:m` become
--         `:req@chat:m`

local call = redis.call

local function add_up(key)
  local counters, sums, names = call('HGETALL', key), {}, {}
  for at = 1, #counters, 2 do
    local name = string.match(counters[at], '^%d*(:.*)$')
    if not sums[name] then
      sums[name] = 0
      names[#names + 1] = name
    end
    sums[name] = sums[name] + counters[at + 1]
  end
  if #names == 0 then return end
  call('DEL', key)
  for _, name in ipairs(names) do
    call('HSET', key, name, string.format('%.0f', sums[name]))
  end
end

for _, key in ipairs(KEYS) do
  if ARGV[2] == 'add' then add_up(key) end
  call('EXPIRE', key, ARGV[1])
end

-- Adds up the counters of each part on a UTC day, whatever their endpoint and model.
-- Redis does it, because a thousand keys may have a hundred counters each.
--
-- KEYS  use:{owner}:…, one of each part
-- ARGV  the hours that count: `00` to `23`, and an empty one for a day added up
--
-- Returns a list for each part: counter, sum, counter, sum, …

local wanted = {}
for _, hour in ipairs(ARGV) do wanted[hour] = true end

local parts = {}
for _, key in ipairs(KEYS) do
  local counters = redis.call('HGETALL', key)
  local sums, names = {}, {}
  for at = 1, #counters, 2 do
    local hour, name = string.match(counters[at], '^(%d*):([^@:]+)')
    if wanted[hour] then
      if not sums[name] then
        sums[name] = 0
        names[#names + 1] = name
      end
      sums[name] = sums[name] + counters[at + 1]
    end
  end
  local part = {}
  for _, name in ipairs(names) do
    part[#part + 1] = name
    part[#part + 1] = string.format('%.0f', sums[name])
  end
  parts[#parts + 1] = part
end
return parts

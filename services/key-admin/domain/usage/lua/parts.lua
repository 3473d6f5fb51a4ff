-- Adds up the counters of each part on a UTC day, whatever their endpoint and model.
-- Redis does it, because a thousand keys may have a hundred counters each.
--
-- KEYS  use:{owner}:…, one of each part
-- ARGV  the hours that count: `00` to `23`, and an empty one for a day added up
--
-- Returns a list for each part: counter, sum, counter, sum, …

local wanted = {}
for _, hour in ipairs(ARGV) do wanted[hour] = true end

-- The counter of each field; false where its hour does not count. Parts have mostly the
-- same fields, and to take one apart takes longer than to add its number.
local counters = {}
local function counter_of(field)
  local counter = counters[field]
  if counter == nil then
    local hour, name = string.match(field, '^(%d*):([^@:]+)')
    counter = wanted[hour] and name or false
    counters[field] = counter
  end
  return counter
end

local parts = {}
for at, key in ipairs(KEYS) do
  local fields, sums = redis.call('HGETALL', key), {}
  for place = 1, #fields, 2 do
    local counter = counter_of(fields[place])
    if counter then
      sums[counter] = (sums[counter] or 0) + fields[place + 1]
    end
  end
  local part = {}
  for counter, sum in pairs(sums) do
    part[#part + 1] = counter
    part[#part + 1] = string.format('%.0f', sum)
  end
  parts[at] = part
end
return parts

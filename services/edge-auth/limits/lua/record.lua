-- The records of keys and owners, for the script that admits: it stands before it.

local RECORD = {}

local INTEGER_MAX = 9007199254740991

function RECORD.whole_number(text)
  if not text then return 0 end
  local value = tonumber(text)
  if not (value and value >= 0 and value <= INTEGER_MAX and value % 1 == 0) then
    error('corrupt number in the record of a key or an owner')
  end
  return value
end

function RECORD.list_has(list, item)
  return string.find(',' .. list .. ',', ',' .. item .. ',', 1, true)
end

-- Whether an address is in one of the networks: both are 32 hexadecimal digits, of
-- which networks name how many bits count, `<digits>/<bits>`.
function RECORD.is_within(networks, address)
  if #address ~= 32 then return false end
  for first, bits in string.gmatch(networks, '(%x+)/(%d+)') do
    local whole, rest = math.floor(bits / 4), bits % 4
    if string.sub(first, 1, whole) == string.sub(address, 1, whole) then
      local size = 2 ^ (4 - rest)
      local function next_bits(digits)
        return math.floor(tonumber(string.sub(digits, whole + 1, whole + 1), 16) / size)
      end
      if rest == 0 or next_bits(first) == next_bits(address) then return true end
    end
  end
  return false
end

-- Reads the limits, the budgets, the state and more fields of a record, by their names;
-- false where it has none.
function RECORD.read(key, unit, ...)
  local names = { 'state', 'rpm', 'tpm', 'tpd', 'conc', 'video_jobs', unit,
    'budget_day', 'budget_month', 'budget_total', ... }
  local values = redis.call('HMGET', key, unpack(names))
  local record = {}
  for nth, name in ipairs(names) do record[name] = values[nth] end
  return record
end

-- The limits in a record, with that of a unit; 0: none.
function RECORD.limits(record, unit)
  local function limit(name) return RECORD.whole_number(record[name]) end
  return {
    requests_per_minute = limit('rpm'),
    tokens_per_minute = limit('tpm'),
    tokens_per_day = limit('tpd'),
    concurrency = limit('conc'),
    video_jobs = limit('video_jobs'),
    units_per_day = limit(unit),
    budget_day = limit('budget_day'),
    budget_month = limit('budget_month'),
    budget_total = limit('budget_total'),
  }
end

function RECORD.has_limit(limits)
  for _, limit in pairs(limits) do
    if limit > 0 then return true end
  end
  return false
end

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

-- Reads the fields of the limits, the state, the budgets, and more.
function RECORD.read(key, unit, ...)
  return redis.call('HMGET', key, 'rpm', 'tpm', 'tpd', 'conc', 'video_jobs', unit, 'state',
    'budget_day', 'budget_month', 'budget_total', ...)
end

RECORD.STATE = 7
RECORD.BUDGETS = 8
RECORD.MORE = 11

-- The limits in the fields that `read` returns.
function RECORD.limits(fields)
  local numbers = {}
  for at = 1, RECORD.MORE - 1 do
    numbers[at] = at ~= RECORD.STATE and RECORD.whole_number(fields[at]) or 0
  end
  return {
    requests_per_minute = numbers[1],
    tokens_per_minute = numbers[2],
    tokens_per_day = numbers[3],
    concurrency = numbers[4],
    video_jobs = numbers[5],
    units_per_day = numbers[6],
    budget_day = numbers[RECORD.BUDGETS],
    budget_month = numbers[RECORD.BUDGETS + 1],
    budget_total = numbers[RECORD.BUDGETS + 2],
  }
end

function RECORD.has_limit(limits)
  for _, limit in pairs(limits) do
    if limit > 0 then return true end
  end
  return false
end

-- The records of keys and owners, for the script that admits: it stands before it.

local INTEGER_MAX = 9007199254740991

local function whole_number(text)
  if not text then return 0 end
  local value = tonumber(text)
  if not (value and value >= 0 and value <= INTEGER_MAX and value % 1 == 0) then
    error('corrupt number in the record of a key or an owner')
  end
  return value
end

-- The limits from the values of a record, the first of which is at an index; 0: none.
-- They have the texts of the budgets, too.
local function limits_in(values, at)
  return {
    requests_per_minute = whole_number(values[at]),
    tokens_per_minute = whole_number(values[at + 1]),
    tokens_per_day = whole_number(values[at + 2]),
    concurrency = whole_number(values[at + 3]),
    video_jobs = whole_number(values[at + 4]),
    units_per_day = whole_number(values[at + 5]),
    budget_day = whole_number(values[at + 6]),
    budget_month = whole_number(values[at + 7]),
    budget_total = whole_number(values[at + 8]),
    values = values,
    budgets_from = at + 6,
  }
end

-- The record of a key, whose limits include that of a unit. What it does not have is
-- false, or 0 if it is a number.
local function read_key(record_key, unit)
  local values = redis.call('HMGET', record_key, 'state', 'expires_at', 'scopes',
    'models', 'networks', 'end_user', 'queue_weight', 'priority', 'keep_seconds', 'rpm',
    'tpm', 'tpd', 'conc', 'video_jobs', unit, 'budget_day', 'budget_month',
    'budget_total')
  return {
    state = values[1],
    expires_at = whole_number(values[2]),
    scopes = values[3] or '',
    models = values[4] or '',
    networks = values[5] or '',
    end_user = values[6] or '',
    queue_weight = whole_number(values[7]),
    priority = values[8],
    keep_seconds = whole_number(values[9]),
    limits = limits_in(values, 10),
  }
end

-- The record of an owner, in the same way.
local function read_owner(owner_key, unit)
  local values = redis.call('HMGET', owner_key, 'state', 'queue_weight', 'rpm', 'tpm',
    'tpd', 'conc', 'video_jobs', unit, 'budget_day', 'budget_month', 'budget_total')
  return {
    state = values[1],
    queue_weight = whole_number(values[2]),
    limits = limits_in(values, 3),
  }
end

local function has_budget(limits)
  return limits.budget_day > 0 or limits.budget_month > 0 or limits.budget_total > 0
end

local function has_limit(limits)
  return limits.requests_per_minute > 0 or limits.tokens_per_minute > 0
    or limits.tokens_per_day > 0 or limits.concurrency > 0 or limits.video_jobs > 0
    or limits.units_per_day > 0 or has_budget(limits)
end

local function list_has(list, item)
  return string.find(',' .. list .. ',', ',' .. item .. ',', 1, true)
end

-- Whether an address is in one of the networks: both are 32 hexadecimal digits, of
-- which networks name how many bits count, `<digits>/<bits>`.
local function is_within(networks, address)
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

return {
  read_key = read_key,
  read_owner = read_owner,
  has_budget = has_budget,
  has_limit = has_limit,
  list_has = list_has,
  is_within = is_within,
}

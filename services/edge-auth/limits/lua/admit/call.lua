-- What a call of the script that admits asks, and when: it stands before its parts.
--
-- Constants: LIMITER_EPOCH_MS LEASE_MS

local DAY_MS = 86400000

local FIRST_REQUEST = 9
local ARGS_PER_REQUEST = 6

-- Returns the requests, by the names of their arguments.
local function requests()
  local list = {}
  for at = FIRST_REQUEST, #ARGV, ARGS_PER_REQUEST do
    list[#list + 1] = {
      model = ARGV[at],
      tokens = tonumber(ARGV[at + 1]),
      units = tonumber(ARGV[at + 2]),
      lease = ARGV[at + 3],
      nanos = tonumber(ARGV[at + 4]),
      address = ARGV[at + 5],
    }
  end
  return list
end

local time = redis.call('TIME')
local now = time[1] * 1000 - LIMITER_EPOCH_MS + time[2] / 1000
local expected_unix = tonumber(ARGV[5])
local expected = expected_unix and expected_unix - LIMITER_EPOCH_MS or now

return {
  record_key = ARGV[1],
  owner_key = ARGV[2],
  scope = ARGV[3],
  unit = ARGV[4],
  calendar = ARGV[6],
  -- The source by which the edge tells end users apart.
  end_user_source = ARGV[7],
  -- The budgets that the leases name; empty: none.
  lease_budgets = ARGV[8],
  requests = requests,
  -- Times are in ms since LIMITER_EPOCH_MS, but for `now_unix`.
  now = now,
  now_unix = math.floor(now) + LIMITER_EPOCH_MS,
  today = math.floor(now / DAY_MS),
  lease_ends = math.floor(now) + LEASE_MS,
  -- Leases that end later than this are alive.
  alive_from = math.min(now, expected),
}

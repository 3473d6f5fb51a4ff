-- What a call of the script that settles asks, and what its requests add up to: it
-- stands before its parts.
--
-- Constants: LIMITER_EPOCH_MS LEASE

local FIRST_REQUEST = 8
local ARGS_PER_REQUEST = 16

-- Reads the arguments of the request that begin at an index.
local function request_at(at)
  return {
    lease = ARGV[at],
    -- The id of its end user; nil: it has none.
    user = LEASE.end_user_in(ARGV[at]),
    may_lack_lease = ARGV[at + 1] == '1',
    tokens_over = tonumber(ARGV[at + 2]),
    requests_returned = tonumber(ARGV[at + 3]),
    requests = tonumber(ARGV[at + 4]),
    prompt_tokens = tonumber(ARGV[at + 5]),
    completion_tokens = tonumber(ARGV[at + 6]),
    errors = tonumber(ARGV[at + 7]),
    cached = tonumber(ARGV[at + 8]),
    cache_written = tonumber(ARGV[at + 9]),
    units = tonumber(ARGV[at + 10]),
    units_over = tonumber(ARGV[at + 11]),
    cost = tonumber(ARGV[at + 12]),
    unpriced = tonumber(ARGV[at + 13]),
    is_lost = ARGV[at + 14] == '1',
    -- What it holds: an amount, "?" or "".
    hold = ARGV[at + 15],
    had_lease = false,
    -- Where its reply is, if its edge is lost.
    place = nil,
  }
end

-- Returns the requests.
local function requests()
  local list = {}
  for at = FIRST_REQUEST, #ARGV, ARGS_PER_REQUEST do
    list[#list + 1] = request_at(at)
  end
  return list
end

-- The time in whole ms since LIMITER_EPOCH_MS.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 - LIMITER_EPOCH_MS + math.floor(time[2] / 1000)
end

return {
  admitted_on = tonumber(ARGV[1]),
  suffix = ARGV[3],
  unit_counter = ARGV[4],
  unit_limit = ARGV[5],
  video_has_begun = ARGV[6] == '1',
  lease_budgets = ARGV[7],
  requests = requests,
  now = now,
  -- What the requests add to the counters of an hour, which is empty if nothing is
  -- counted.
  sum = {
    hour = ARGV[2],
    tokens_over = 0,
    requests_returned = 0,
    requests = 0,
    prompt_tokens = 0,
    completion_tokens = 0,
    errors = 0,
    cached = 0,
    cache_written = 0,
    units = 0,
    units_over = 0,
    cost = 0,
    unpriced = 0,
    lost = 0,
    lost_cost = 0,
  },
}

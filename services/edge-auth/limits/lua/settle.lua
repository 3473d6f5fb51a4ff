-- Ends admitted requests of one key, hour, endpoint, model and unit: removes their
-- leases, corrects the reservations to the actual use, counts usage. Idempotent: only
-- the call that removes the lease of a request does the rest for it.
--
-- KEYS  1 lim:{owner}:<key>             2 lease:{owner}:<key>
--       3 lim:{owner}                   4 lease:{owner}
--       5 use:{owner}:<key>:<yyyymmdd>  6 use:{owner}:<yyyymmdd>
--       7 lease:{owner}:<key>:video     8 lease:{owner}:video, of a request to begin a
--                                         video
-- ARGV  1 UTC day of the admissions, as in the state, or empty: unknown
--       2 hour of the usage fields "00".."23", or empty: nothing is counted
--       3 end of the usage fields: "@chat:small-1", or empty
--       4 counter of the unit
--       5 limit of the unit
--       6 "1": the video has begun, and keeps its slot
--       7 the budgets that the leases name
--       then of each request
--       lease id
--       "1": settle it even if its lease is lost
--       tokens used minus tokens reserved
--       requests to return
--       requests, prompt tokens, completion tokens, errors to count
--       of the prompt tokens, those read from a cache and those written to it
--       units made, to count
--       units made minus units reserved
--       its cost in billionths, to count
--       "1": it has no price, although others have one
--       "1": its edge is lost, and it is charged what it had reserved
--       what it holds of budgets, in billionths, as its lease says; empty: nothing;
--                              "?": look at what is kept beside the lease
--
-- Returns for each request 1: settled, 2: settled without its lease, 0: no such lease;
-- and of one whose edge is lost, if it is settled, its cost in billionths in a list.
--
-- A request that is charged as lost leaves a mark, as long as its lease would last: its
-- edge may only have been cut off, and settle it later. What was charged, which the id
-- of the lease says (`rate.ts`), is taken back then. What it held
-- of budgets is charged to the windows of its admission, and to its usage if its edge
-- is lost.
--
-- A video is settled twice: its request, and when it has ended, with KEYS 7 and 8 as
-- KEYS 2 and 4. The correction uses the limits of the last admission; a state that has
-- expired is not recreated. The leases are removed first, because a script that has
-- already written may continue when memory is full.
--
-- Costs are at most COST_NANOS_MAX of `shared/money`, so that the sum of a call is
-- below 2^53, where doubles end to hold all integers. Redis adds it to counters of 64
-- bits.
--
-- Constants: LIMITER_EPOCH_MS LEASE_MS LEASES_TTL_MS VIDEO_JOB_MS USAGE_TTL_S REQUESTS
-- PROMPT_TOKENS COMPLETION_TOKENS CACHED_TOKENS CACHE_WRITE_TOKENS ERRORS COST UNPRICED
-- LOST_REQUESTS LOST_COST BUDGET SPENDING END_USER STATE

local call, floor, max = redis.call, math.floor, math.max

local MINUTE_MS = 60000
local FIRST_REQUEST = 8
local ARGS_PER_REQUEST = 16

local admitted_on, hour, suffix = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local unit_counter, unit_limit, video_has_begun = ARGV[4], ARGV[5], ARGV[6] == '1'
local lease_budgets = ARGV[7]

-- The time in whole ms since LIMITER_EPOCH_MS.
local function now()
  local time = call('TIME')
  return time[1] * 1000 - LIMITER_EPOCH_MS + floor(time[2] / 1000)
end

-- What the requests of this call add to the counters.
local sum = {
  tokens_over = 0, requests_returned = 0, requests = 0, prompt_tokens = 0,
  completion_tokens = 0, errors = 0, cached = 0, cache_written = 0, units = 0,
  units_over = 0, cost = 0, unpriced = 0, lost = 0, lost_cost = 0,
}

-- What the requests of each end user give back, by their ids.
local users = {}

local hold_key = BUDGET.hold_key(KEYS[1])
local mark_of = SPENDING.mark_of

-- What changes of budgets: a list, in which requests that held of the same are once,
-- and the same by whose and which these are.
local changes = {}
-- What is kept beside leases and is over: leases, and marks of those charged as lost.
local ended_holds = {}

local function change_of(request, budgets)
  local name = request.user and request.user .. budgets or budgets
  local change = changes[name]
  if not change then
    change = { lease = request.lease, budgets = budgets, held = 0, spent = 0 }
    changes[name] = change
    changes[#changes + 1] = change
  end
  return change
end

local function write_budgets()
  for _, change in ipairs(changes) do
    local limiter_keys = END_USER.limiter_keys(KEYS[1], KEYS[3], change.lease)
    SPENDING.change(limiter_keys, change.budgets, change)
  end
  SPENDING.drop_holds(KEYS[1], ended_holds)
  if sum.lost > 0 then SPENDING.drop_old_marks(hold_key, now()) end
end

-- Charges a request that held something of budgets. Returns its cost, which is what it
-- held if its edge is lost.
local function charge(request, held, budgets)
  local cost = request.cost
  if request.is_lost and budgets ~= '' then cost = held end
  local change = change_of(request, budgets)
  change.held, change.spent = change.held - held, change.spent + cost
  return cost
end

-- Takes back what a request was charged as lost. Returns what it costs beyond that.
local function charge_rest(request, charged)
  local amount, budgets = BUDGET.parts(charged)
  local cost = request.cost - amount
  local change = change_of(request, budgets)
  change.spent = change.spent + cost
  ended_holds[#ended_holds + 1] = mark_of(request.lease)
  sum.lost_cost = sum.lost_cost - amount
  return cost
end

-- Settles what a request held of budgets, which may be kept beside its lease. If Redis
-- has lost the lease, it has lost what that held, too. Returns its cost.
local function settle_hold(request, hold)
  local lease = request.lease
  if hold.charged and not hold.kept then
    return request.is_lost and request.cost or charge_rest(request, hold.charged)
  end
  local text = hold.kept or request.had_lease and BUDGET.text_in(lease)
  if not text then return request.cost end
  if hold.kept then ended_holds[#ended_holds + 1] = lease end
  local held, budgets = BUDGET.parts(text)
  if request.is_lost and budgets ~= '' then
    SPENDING.mark_lost(hold_key, lease, text, now())
  end
  return charge(request, held, budgets)
end

-- Takes back what a request was charged when its edge was taken for lost.
local function take_back(lease)
  local charged_in, prompt, completion, count, cost, unpriced = string.match(lease,
    '^[^~]+~%d%d%d%d%d%d%d%d(%d%d)~(%d+)~(%d+)~%w*~(%d+)~(%d+)~([01])~')
  if not prompt then return end
  if hour == '' then hour = charged_in end
  sum.requests, sum.lost = sum.requests - 1, sum.lost - 1
  sum.prompt_tokens = sum.prompt_tokens - prompt
  sum.completion_tokens = sum.completion_tokens - completion
  sum.units = sum.units - count
  sum.unpriced = sum.unpriced - unpriced
  -- What it held of budgets, `settle_hold` takes back.
  if call('HEXISTS', hold_key, mark_of(lease)) == 1 then return end
  sum.cost, sum.lost_cost = sum.cost - cost, sum.lost_cost - cost
end

-- Reads the arguments of the request that begin at an index.
local function request_at(at)
  return {
    lease = ARGV[at],
    -- The id of its end user; nil: it has none.
    user = END_USER.id_in(ARGV[at]),
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
  }
end

-- Removes the lease of a request, or its mark. Returns what the script does.
local function remove_lease(request)
  local lease = request.lease
  if call('ZREM', KEYS[2], lease) == 1 then
    request.had_lease = true
    return 1
  end
  if request.is_lost then return 0 end
  if call('ZREM', KEYS[2], mark_of(lease)) == 1 then
    take_back(lease)
    return 1
  end
  return request.may_lack_lease and 2 or 0
end

local function add_to_user(request)
  local id = request.user
  if not id then return end
  local user = users[id] or { tokens_over = 0, requests_returned = 0 }
  user.tokens_over = user.tokens_over + request.tokens_over
  user.requests_returned = user.requests_returned + request.requests_returned
  users[id] = user
end

-- The amounts of a request that are added up as they are.
local AMOUNTS = {
  'tokens_over', 'requests_returned', 'requests', 'prompt_tokens', 'completion_tokens',
  'errors', 'cached', 'cache_written', 'units', 'units_over', 'unpriced',
}

-- Whether what a request held of budgets ends with it; a video that has begun keeps it.
local function ends_hold(request)
  return request.hold ~= '' and not (video_has_begun and KEYS[7])
end

-- What a request holds as its lease says; nil: what is kept beside it must be read.
local function amount_held(request)
  return request.had_lease and tonumber(request.hold) or nil
end

-- Settles what the request held; `hold` is kept beside its lease. Returns its cost.
local function cost_of(request, hold)
  if not ends_hold(request) then return request.cost end
  local held = amount_held(request)
  if held then return charge(request, held, lease_budgets) end
  return hold and settle_hold(request, hold) or request.cost
end

-- Returns what the request costs.
local function add_amounts(request, hold)
  add_to_user(request)
  for _, name in ipairs(AMOUNTS) do sum[name] = sum[name] + request[name] end
  local cost = cost_of(request, hold)
  sum.cost = sum.cost + cost
  if not request.is_lost then return cost end
  sum.lost, sum.lost_cost = sum.lost + 1, sum.lost_cost + cost
  call('ZADD', KEYS[2], now() - LEASE_MS, mark_of(request.lease))
  call('PEXPIRE', KEYS[2], LEASES_TTL_MS)
  return cost
end

-- Removes the leases of all requests. Returns the replies, and the requests that are
-- settled now.
local function remove_leases()
  local replies, settled = {}, {}
  for at = FIRST_REQUEST, #ARGV, ARGS_PER_REQUEST do
    local request = request_at(at)
    local reply = remove_lease(request)
    replies[#replies + 1] = reply
    if reply > 0 then
      settled[#settled + 1] = request
      if request.is_lost then request.place = #replies end
    end
  end
  return replies, settled
end

-- Sums up what requests used, and settles what they held of budgets. Returns their
-- leases, and replies what lost ones cost.
local function add_up(settled, replies)
  local leases, unsure = {}, {}
  for _, request in ipairs(settled) do
    leases[#leases + 1] = request.lease
    if ends_hold(request) and not amount_held(request) then
      unsure[#unsure + 1] = request.lease
    end
  end
  local holds = SPENDING.holds_of(KEYS[1], unsure)
  for _, request in ipairs(settled) do
    local cost = add_amounts(request, holds[request.lease])
    if request.place then replies[request.place] = { cost } end
    -- A lease that is named twice holds nothing the second time.
    holds[request.lease] = nil
  end
  write_budgets()
  return leases
end

local function settle_video(video_key, leases)
  for _, lease in ipairs(leases) do
    if video_has_begun then
      call('ZADD', video_key, 'XX', now() + VIDEO_JOB_MS, lease)
    else
      call('ZREM', video_key, lease)
    end
  end
end

local function correct_state(state_key, over)
  if over.tokens_over == 0 and over.requests_returned == 0 then return end
  local state = STATE.read(state_key)
  if not (state and state.requests_per_minute) then return end
  if state.requests_per_minute > 0 then
    local returned_ms = over.requests_returned * MINUTE_MS / state.requests_per_minute
    state.requests_full_at = state.requests_full_at - returned_ms
  end
  if state.tokens_per_minute > 0 then
    local over_ms = over.tokens_over * MINUTE_MS / state.tokens_per_minute
    state.tokens_full_at = state.tokens_full_at + over_ms
  end
  if not admitted_on or admitted_on == state.day then
    state.tokens_today = max(0, state.tokens_today + over.tokens_over)
  end
  STATE.write(state_key, state)
end

local function correct_units(state_key)
  local state = STATE.read_unit(state_key, unit_limit)
  if not state then return end
  if admitted_on and admitted_on ~= state.day then return end
  state.used = max(0, state.used + sum.units_over)
  STATE.write_unit(state_key, unit_limit, state)
end

-- What is counted: field, amount, field, amount. The requests are the first.
local counted = {}

local function count(counter, amount)
  if amount == 0 and counter ~= REQUESTS then return end
  counted[#counted + 1] = hour .. ':' .. counter .. suffix
  counted[#counted + 1] = string.format('%d', amount)
end

local function count_all()
  count(REQUESTS, sum.requests)
  count(PROMPT_TOKENS, sum.prompt_tokens)
  count(COMPLETION_TOKENS, sum.completion_tokens)
  count(CACHED_TOKENS, sum.cached)
  count(CACHE_WRITE_TOKENS, sum.cache_written)
  count(ERRORS, sum.errors)
  count(unit_counter, sum.units)
  count(COST, sum.cost)
  count(UNPRICED, sum.unpriced)
  count(LOST_REQUESTS, sum.lost)
  count(LOST_COST, sum.lost_cost)
end

local function write_usage(usage_key)
  for at = 1, #counted, 2 do
    local total = call('HINCRBY', usage_key, counted[at], counted[at + 1])
    if at == 1 and total <= max(1, sum.requests) then
      call('EXPIRE', usage_key, USAGE_TTL_S)
    end
  end
end

local replies, settled = remove_leases()
if #settled == 0 then return replies end
local leases = add_up(settled, replies)
call('ZREM', KEYS[4], unpack(leases))
for at = 7, #KEYS do settle_video(KEYS[at], leases) end
for _, state_key in ipairs({ KEYS[1], KEYS[3] }) do
  correct_state(state_key, sum)
  if sum.units_over ~= 0 then correct_units(state_key) end
end
for id, over in pairs(users) do
  correct_state(END_USER.state_key(KEYS[1], id), over)
end
if hour ~= '' then
  count_all()
  write_usage(KEYS[5])
  write_usage(KEYS[6])
end
return replies

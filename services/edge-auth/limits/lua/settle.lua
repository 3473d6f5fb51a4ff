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
-- of the lease says (`rate.ts`), is taken back then. What it held of budgets is charged
-- to the windows of its admission, and to its usage if its edge is lost.
--
-- A video is settled twice: its request, and when it has ended, with KEYS 7 and 8 as
-- KEYS 2 and 4. The correction uses the limits of the last admission; a state that has
-- expired is not recreated. The leases are removed first, because a script that has
-- already written may continue when memory is full.
--
-- Costs are at most COST_NANOS_MAX of `shared/money`, so that the sum of a call is
-- below 2^53: up to there, a double holds every integer. Redis adds it to counters of
-- 64 bits.
--
-- The parts are in `settle`, and stand before this.
--
-- Constants: CALL LEASE_MS LEASES_TTL_MS VIDEO_JOB_MS USAGE_TTL_S REQUESTS
-- PROMPT_TOKENS COMPLETION_TOKENS CACHED_TOKENS CACHE_WRITE_TOKENS ERRORS COST UNPRICED
-- LOST_REQUESTS LOST_COST HOLDS LEASE END_USER STATE

local call, max = redis.call, math.max

local MINUTE_MS = 60000

local sum = CALL.sum

-- What the requests of each end user give back, by their ids.
local users = {}

-- Removes the lease of a request, or its mark. Returns what the script does.
local function remove_lease(request)
  local lease = request.lease
  if call('ZREM', KEYS[2], lease) == 1 then
    request.had_lease = true
    return 1
  end
  if request.is_lost then return 0 end
  if call('ZREM', KEYS[2], LEASE.mark_of(lease)) == 1 then
    HOLDS().take_back(lease)
    return 1
  end
  return request.may_lack_lease and 2 or 0
end

-- Removes the leases of all requests. Returns the replies, and the requests that are
-- settled now.
local function remove_leases()
  local replies, settled = {}, {}
  for nth, request in ipairs(CALL.requests()) do
    local reply = remove_lease(request)
    replies[nth] = reply
    if reply > 0 then
      settled[#settled + 1] = request
      request.place = nth
    end
  end
  return replies, settled
end

-- Settles what requests held of budgets, and with it what they cost. A video that has
-- begun keeps what it holds. Returns whether any of them held something.
local function settle_holds(settled)
  if CALL.video_has_begun and KEYS[7] then return false end
  for _, request in ipairs(settled) do
    if request.hold ~= '' then
      HOLDS().settle(settled)
      return true
    end
  end
  return false
end

local function add_to_user(request)
  local id = request.user
  local user = users[id] or { tokens_over = 0, requests_returned = 0 }
  user.tokens_over = user.tokens_over + request.tokens_over
  user.requests_returned = user.requests_returned + request.requests_returned
  users[id] = user
end

-- The amounts of a request that are added up.
local AMOUNTS = {
  'tokens_over', 'requests_returned', 'requests', 'prompt_tokens', 'completion_tokens',
  'errors', 'cached', 'cache_written', 'units', 'units_over', 'cost', 'unpriced',
}

-- Counts a request whose edge is lost, and leaves its mark.
local function note_lost(request)
  sum.lost, sum.lost_cost = sum.lost + 1, sum.lost_cost + request.cost
  call('ZADD', KEYS[2], CALL.now() - LEASE_MS, LEASE.mark_of(request.lease))
  call('PEXPIRE', KEYS[2], LEASES_TTL_MS)
end

-- Adds up what requests used. Returns their leases, and replies what lost ones cost.
local function add_up(settled, replies)
  local leases = {}
  for nth, request in ipairs(settled) do
    leases[nth] = request.lease
    if request.user then add_to_user(request) end
    for _, name in ipairs(AMOUNTS) do sum[name] = sum[name] + request[name] end
    if request.is_lost then
      note_lost(request)
      replies[request.place] = { request.cost }
    end
  end
  return leases
end

local function settle_video(video_key, leases)
  for _, lease in ipairs(leases) do
    if CALL.video_has_begun then
      call('ZADD', video_key, 'XX', CALL.now() + VIDEO_JOB_MS, lease)
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
  if not CALL.admitted_on or CALL.admitted_on == state.day then
    state.tokens_today = max(0, state.tokens_today + over.tokens_over)
  end
  STATE.write(state_key, state)
end

local function correct_units(state_key)
  local state = STATE.read_unit(state_key, CALL.unit_limit)
  if not state then return end
  if CALL.admitted_on and CALL.admitted_on ~= state.day then return end
  state.used = max(0, state.used + sum.units_over)
  STATE.write_unit(state_key, CALL.unit_limit, state)
end

-- What is counted: field, amount, field, amount. The requests are the first.
local counted = {}

local function count(counter, amount)
  if amount == 0 and counter ~= REQUESTS then return end
  counted[#counted + 1] = sum.hour .. ':' .. counter .. CALL.suffix
  counted[#counted + 1] = string.format('%d', amount)
end

local function count_all()
  count(REQUESTS, sum.requests)
  count(PROMPT_TOKENS, sum.prompt_tokens)
  count(COMPLETION_TOKENS, sum.completion_tokens)
  count(CACHED_TOKENS, sum.cached)
  count(CACHE_WRITE_TOKENS, sum.cache_written)
  count(ERRORS, sum.errors)
  count(CALL.unit_counter, sum.units)
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
local has_held = settle_holds(settled)
local leases = add_up(settled, replies)
if has_held or sum.lost > 0 then HOLDS().write() end
call('ZREM', KEYS[4], unpack(leases))
for at = 7, #KEYS do settle_video(KEYS[at], leases) end
for _, state_key in ipairs({ KEYS[1], KEYS[3] }) do
  correct_state(state_key, sum)
  if sum.units_over ~= 0 then correct_units(state_key) end
end
for id, over in pairs(users) do
  correct_state(END_USER().state_key(KEYS[1], id), over)
end
if sum.hour ~= '' then
  count_all()
  write_usage(KEYS[5])
  write_usage(KEYS[6])
end
return replies

-- The first part of the script that admits: reads the records of a key and its owner,
-- and what has been used of their limits.
--
-- A side is whose limits a request must keep: the key, its owner, its end user. It has
-- a meter for each limit, with what the last request that was checked would make of it.
--
-- Constants: CALL STORE_KEY LIMITER_EPOCH_MS MONEY END_USER STATE RECORD LEASE

local NO_END_USERS = { from = '', budget_day = 0 }
local NO_BUDGETS = {}

local loaded = {
  -- The records, and what the key has for its end users.
  key = nil,
  owner = nil,
  end_user = nil,
  -- How its requests wait and are kept; nil: like those of most keys.
  terms = nil,
  has_budget = false,
  -- The key, and the owner if it has limits; nil before the first request needs them.
  sides = nil,
  -- The end users whose requests came, by their ids.
  users = {},
  -- The sides of their requests, by the same.
  sides_with_user = {},
  records = nil,
  sides_of = nil,
  save_state = nil,
}

-- How the requests wait: the weights of the account and of the key in percent (0: not
-- set), and 1 if they stand back; nil: like all others.
local function queue_of(key, owner)
  local is_batch = key.priority == 'batch'
  if owner.queue_weight == 0 and key.queue_weight == 0 and not is_batch then
    return nil
  end
  return { owner.queue_weight, key.queue_weight, is_batch and 1 or 0 }
end

-- How the requests wait, and for how many seconds their answers are kept; nil: like all
-- others, and not at all.
local function terms_of(key, owner)
  local queue = queue_of(key, owner)
  if not queue and key.keep_seconds == 0 then return nil end
  -- `false` is a null in the reply: nil would end it.
  return {
    queue = queue or false,
    keep_seconds = key.keep_seconds > 0 and key.keep_seconds or nil,
  }
end

-- Reads the records. Returns the reply that refuses every request; nil: none does.
function loaded.records()
  local key = RECORD.read_key(CALL.record_key, CALL.unit)
  if not key.state then
    return { redis.call('GET', STORE_KEY) and 'unknown' or 'empty' }
  end
  if key.expires_at > 0 and key.expires_at - LIMITER_EPOCH_MS <= CALL.now then
    return { 'expired' }
  end
  local owner = RECORD.read_owner(CALL.owner_key, CALL.unit)
  if key.state ~= 'enabled' or owner.state == 'disabled' then return { 'disabled' } end
  if CALL.scope ~= '' and not RECORD.list_has(key.scopes, CALL.scope) then
    return { 'scope' }
  end
  loaded.key, loaded.owner = key, owner
  loaded.end_user = key.end_user == '' and NO_END_USERS or END_USER().read(key.end_user)
  loaded.terms = terms_of(key, owner)
  loaded.has_budget = loaded.end_user.budget_day > 0 or RECORD.has_budget(key.limits)
    or RECORD.has_budget(owner.limits)
  if not loaded.has_budget then return nil end
  if not MONEY().read_calendar() then return { 'calendar', CALL.now_unix } end
end

-- Reads what has been used. `who` is "key", "owner" or "user".
local function read_side(who, limits, keys)
  local state = STATE.read(keys.state) or STATE.unused(CALL.today)
  local has_leases = who == 'key' or limits.concurrency > 0
  return {
    who = who,
    limits = limits,
    state_key = keys.state,
    -- An owner without a limit is not worth a write for every request; the leases of
    -- long requests are there all the same, once they are renewed.
    lease_key = has_leases and keys.leases or nil,
    admitted_at = state.admitted_at,
    -- What is counted by minute: full again at `full_at`.
    requests = {
      who = who,
      name = 'requests',
      limit = limits.requests_per_minute,
      full_at = state.requests_full_at,
      next_full_at = 0,
      remaining = 0,
      reset = 0,
    },
    tokens = {
      who = who,
      name = 'tokens',
      limit = limits.tokens_per_minute,
      full_at = state.tokens_full_at,
      next_full_at = 0,
      remaining = 0,
      reset = 0,
    },
    -- What is counted by day.
    tokens_today = {
      who = who,
      name = 'day',
      per_day = limits.tokens_per_day,
      -- Whether a cost of 0 means that the cost is not known yet.
      is_zero_unknown = false,
      day = state.day,
      used = state.tokens_today,
      next_day = 0,
      next_used = 0,
    },
    units_today = nil,
    leases_stored = has_leases and keys.leases and redis.call('ZCARD', keys.leases) or 0,
    leases_alive = nil,
    videos_running = 0,
    budgets = RECORD.has_budget(limits) and MONEY().load(who, limits, keys.state)
      or NO_BUDGETS,
    -- How many requests were admitted.
    taken = 0,
  }
end

local function read_units(side)
  local used = STATE.read_unit(side.state_key, CALL.unit)
  return {
    who = side.who,
    name = CALL.unit,
    per_day = side.limits.units_per_day,
    is_zero_unknown = true,
    day = used and used.day or CALL.today,
    used = used and used.used or 0,
    next_day = 0,
    next_used = 0,
  }
end

-- Writes what has been used of requests and tokens.
function loaded.save_state(side)
  STATE.write(side.state_key, {
    admitted_at = CALL.now,
    requests_full_at = side.requests.full_at,
    tokens_full_at = side.tokens.full_at,
    day = side.tokens_today.day,
    tokens_today = side.tokens_today.used,
    requests_per_minute = side.limits.requests_per_minute,
    tokens_per_minute = side.limits.tokens_per_minute,
  })
end

-- Reads a side, and follows a clock that was set back since its last admission.
local function load_side(who, limits, keys)
  local side = read_side(who, limits, keys)
  if CALL.unit ~= '' then side.units_today = read_units(side) end
  if keys.videos and limits.video_jobs > 0 then
    side.videos_running = redis.call('ZCOUNT', keys.videos, CALL.now, '+inf')
  end
  local ahead = side.admitted_at - CALL.now
  if ahead <= 0 then return side end
  side.requests.full_at = side.requests.full_at - ahead
  side.tokens.full_at = side.tokens.full_at - ahead
  loaded.save_state(side)
  return side
end

local function load_sides()
  local key_keys = { state = KEYS[1], leases = KEYS[2], videos = KEYS[5] }
  loaded.sides = { load_side('key', loaded.key.limits, key_keys) }
  local owner_limits = loaded.owner.limits
  if not RECORD.has_limit(owner_limits) then return end
  local owner_keys = { state = KEYS[3], leases = KEYS[4], videos = KEYS[6] }
  loaded.sides[2] = load_side('owner', owner_limits, owner_keys)
end

local function load_user(id)
  local keys = { state = END_USER().state_key(KEYS[1], id) }
  local user = load_side('user', loaded.end_user, keys)
  loaded.users[id] = user
  return { loaded.sides[1], user, loaded.sides[2] }
end

-- The sides of a request: the key, its end user, the owner.
function loaded.sides_of(lease)
  if not loaded.sides then load_sides() end
  local id = loaded.end_user.from ~= '' and LEASE.end_user_in(lease)
  if not id then return loaded.sides end
  loaded.sides_with_user[id] = loaded.sides_with_user[id] or load_user(id)
  return loaded.sides_with_user[id]
end

return loaded

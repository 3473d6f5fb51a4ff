-- The first part of the script that admits: reads the records of a key and its owner,
-- and what has been used of their limits.
--
-- A side is whose limits a request must keep: the key, its owner, its end user.
--
-- Constants: CALL STORE_KEY LIMITER_EPOCH_MS MONEY END_USER STATE RECORD

local LOAD = {}

local UNUSED = {
  admitted_at = 0,
  requests_full_at = 0,
  tokens_full_at = 0,
  day = CALL.today,
  tokens_today = 0,
}

-- How the requests wait: the weights of the account and of the key in percent (0: not
-- set), and 1 if they stand back; nil: like all others.
local function queue_of(key, owner)
  local account_weight = RECORD.whole_number(owner.queue_weight)
  local key_weight = RECORD.whole_number(key.queue_weight)
  local is_batch = key.priority == 'batch'
  if account_weight == 0 and key_weight == 0 and not is_batch then return nil end
  return { account_weight, key_weight, is_batch and 1 or 0 }
end

-- Reads the records. Returns the reply that refuses every request; nil: none does.
function LOAD.records()
  local key = RECORD.read(CALL.record_key, CALL.unit, 'expires_at', 'scopes', 'models',
    'networks', 'end_user', 'queue_weight', 'priority')
  if not key.state then
    return { redis.call('GET', STORE_KEY) and 'unknown' or 'empty' }
  end
  local expires_at = RECORD.whole_number(key.expires_at)
  if expires_at > 0 and expires_at - LIMITER_EPOCH_MS <= CALL.now then
    return { 'expired' }
  end
  local owner = RECORD.read(CALL.owner_key, CALL.unit, 'queue_weight')
  if key.state ~= 'enabled' or owner.state == 'disabled' then return { 'disabled' } end
  if CALL.scope ~= '' and not RECORD.list_has(key.scopes or '', CALL.scope) then
    return { 'scope' }
  end
  LOAD.key, LOAD.owner, LOAD.end_user = key, owner, END_USER.read(key.end_user)
  LOAD.queue = queue_of(key, owner)
  LOAD.has_budget = LOAD.end_user.budget_day > 0 or MONEY.is_in(key)
    or MONEY.is_in(owner)
  if not LOAD.has_budget then return nil end
  LOAD.calendar = MONEY.calendar(CALL.calendar, CALL.now_unix)
  if not LOAD.calendar then return { 'calendar', CALL.now_unix } end
end

-- Reads what has been used. `who` is "key", "owner" or "user".
local function read_side(who, limits, keys)
  local state = STATE.read(keys.state) or UNUSED
  local unit_state = CALL.unit ~= '' and STATE.read_unit(keys.state, CALL.unit)
  local calendar = LOAD.calendar
  local side = {
    who = who,
    limits = limits,
    state_key = keys.state,
    -- An owner without a limit is not worth a write for every request; the leases of
    -- long requests are there all the same, once they are renewed.
    lease_key = (who == 'key' or limits.concurrency > 0) and keys.leases or nil,
    admitted_at = state.admitted_at,
    requests = {
      limit = limits.requests_per_minute,
      full_at = state.requests_full_at,
    },
    tokens = { limit = limits.tokens_per_minute, full_at = state.tokens_full_at },
    tokens_today = { day = state.day, used = state.tokens_today },
    units_today = unit_state or { day = CALL.today, used = 0 },
    leases_taken = {},
    leases_stored = 0,
    videos_running = 0,
    budgets = calendar and MONEY.load(keys.state, limits, calendar, who) or {},
  }
  if side.lease_key then side.leases_stored = redis.call('ZCARD', side.lease_key) end
  if keys.videos and limits.video_jobs > 0 then
    side.videos_running = redis.call('ZCOUNT', keys.videos, CALL.now, '+inf')
  end
  return side
end

-- Writes what has been used of requests and tokens.
function LOAD.save_state(side)
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
  local ahead = side.admitted_at - CALL.now
  if ahead <= 0 then return side end
  side.requests.full_at = side.requests.full_at - ahead
  side.tokens.full_at = side.tokens.full_at - ahead
  LOAD.save_state(side)
  return side
end

-- The key, and the owner if it has limits; nil before the first request needs them.
LOAD.sides = nil
-- The end users whose requests came, by their ids.
LOAD.users = {}

local function load_sides()
  local key_limits = RECORD.limits(LOAD.key, CALL.unit)
  local key_keys = { state = KEYS[1], leases = KEYS[2], videos = KEYS[5] }
  LOAD.sides = { load_side('key', key_limits, key_keys) }
  local owner_limits = RECORD.limits(LOAD.owner, CALL.unit)
  if not RECORD.has_limit(owner_limits) then return end
  local owner_keys = { state = KEYS[3], leases = KEYS[4], videos = KEYS[6] }
  LOAD.sides[2] = load_side('owner', owner_limits, owner_keys)
end

-- The sides of a request: the key, its end user, the owner.
function LOAD.sides_of(lease)
  if not LOAD.sides then load_sides() end
  local id = LOAD.end_user.from ~= '' and END_USER.id_in(lease)
  if not id then return LOAD.sides end
  if not LOAD.users[id] then
    local keys = { state = END_USER.state_key(KEYS[1], id) }
    LOAD.users[id] = load_side('user', LOAD.end_user, keys)
  end
  return { LOAD.sides[1], LOAD.users[id], LOAD.sides[2] }
end

-- The third part of the script that admits: takes what requests were allowed. All of
-- them are decided before the first write, in memory, one after the other.
--
-- Constants: CALL LOAD LEASES_TTL_MS DEAD_LEASE_MS STATE_TTL_MS VIDEO_START_MS
-- VIDEO_LEASES_TTL_MS DEAD_VIDEO_MS MONEY BUDGET END_USER STATE END_USER_TTL_MS

local call, floor = redis.call, math.floor

local MINUTE_MS = 60000
-- As text, which Redis would make of the number for each key.
local LEASE_ENDS = string.format('%.0f', CALL.lease_ends)
local FIRST_VIDEO_KEY = 5

-- The leases of the requests that are admitted: end, lease, end, lease.
local ends_and_leases = {}
-- What requests hold of budgets, if their leases do not say it: lease, text, lease,
-- text.
local holds = {}

local function take_day(meter)
  meter.day, meter.used = meter.next_day, meter.next_used
end

-- Takes what was checked last.
local function take_side(side)
  side.requests.full_at = side.requests.next_full_at
  side.tokens.full_at = side.tokens.next_full_at
  take_day(side.tokens_today)
  if side.units_today then take_day(side.units_today) end
  side.taken = side.taken + 1
end

-- Admits a request, in memory.
local function take(sides, request, verdict)
  ends_and_leases[#ends_and_leases + 1] = LEASE_ENDS
  ends_and_leases[#ends_and_leases + 1] = request.lease
  for _, side in ipairs(sides) do take_side(side) end
  local names_budgets = CALL.lease_budgets ~= '' and request.nanos
  if not (verdict.hold or names_budgets) then return end
  local text = MONEY().take(sides, request, verdict)
  if not text then return end
  holds[#holds + 1] = request.lease
  holds[#holds + 1] = text
end

local function write_leases(side, is_new_minute)
  local lease_key = side.lease_key
  call('ZADD', lease_key, unpack(ends_and_leases))
  if is_new_minute or side.leases_stored == 0 then
    call('PEXPIRE', lease_key, LEASES_TTL_MS)
  end
  if not is_new_minute then return end
  local dead_before = CALL.now - DEAD_LEASE_MS
  if side.who == 'key' then
    BUDGET().drop_dead_leases(KEYS[1], dead_before)
  else
    call('ZREMRANGEBYSCORE', lease_key, '-inf', dead_before)
  end
end

-- Returns whether the side was not admitted in this minute before.
local function write_side(side)
  if side.taken == 0 then return false end
  local is_user = side.who == 'user'
  LOAD.save_state(side)
  if #side.budgets > 0 then MONEY().commit(side.budgets) end
  if side.units_today and not is_user then
    STATE.write_unit(side.state_key, CALL.unit, side.units_today)
  end
  local is_new_minute =
    floor(CALL.now / MINUTE_MS) ~= floor(side.admitted_at / MINUTE_MS)
  if side.lease_key then write_leases(side, is_new_minute) end
  if not is_new_minute then return false end
  -- The rest is needed only once a minute.
  if not is_user then call('HSET', side.state_key, 'lu', CALL.now_unix) end
  call('PEXPIRE', side.state_key, is_user and END_USER_TTL_MS or STATE_TTL_MS)
  return true
end

local function write_user(id, side)
  if side.taken == 0 then return end
  local is_new_minute = write_side(side)
  END_USER().touch(KEYS[1], {
    id = id,
    now = CALL.now,
    is_new_minute = is_new_minute,
  }, LOAD.has_budget and MONEY().day_window() or nil)
end

-- The slots of videos, which outlast their requests.
local function write_videos(video_key)
  call('ZREMRANGEBYSCORE', video_key, '-inf', CALL.now - DEAD_VIDEO_MS)
  for at = 2, #ends_and_leases, 2 do
    call('ZADD', video_key, floor(CALL.now) + VIDEO_START_MS, ends_and_leases[at])
  end
  call('PEXPIRE', video_key, VIDEO_LEASES_TTL_MS)
end

-- Writes what was taken.
local function write()
  if #ends_and_leases == 0 then return end
  for _, side in ipairs(LOAD.sides) do write_side(side) end
  for id, side in pairs(LOAD.users) do write_user(id, side) end
  for at = FIRST_VIDEO_KEY, #KEYS do write_videos(KEYS[at]) end
  if #holds > 0 then BUDGET().keep_holds(KEYS[1], holds) end
end

return {
  take = take,
  write = write,
}

-- The third part of the script that admits: takes what requests were allowed. All of
-- them are decided before the first write, in memory, one after the other.
--
-- Constants: CALL LOAD LEASES_TTL_MS DEAD_LEASE_MS STATE_TTL_MS VIDEO_START_MS
-- VIDEO_LEASES_TTL_MS DEAD_VIDEO_MS MONEY END_USER STATE

local COMMIT = {}

local call, floor = redis.call, math.floor

local MINUTE_MS = 60000
local FIRST_VIDEO_KEY = 5

-- The leases of the requests that are admitted.
local admitted = {}
-- What they hold of budgets: lease, text, lease, text.
local holds = {}

local function take_day(count)
  count.day, count.used = count.next_day, count.next_used
end

-- Takes what was checked last.
local function take(side, lease)
  side.requests.full_at = side.requests.next_full_at
  side.tokens.full_at = side.tokens.next_full_at
  take_day(side.tokens_today)
  if CALL.unit ~= '' then take_day(side.units_today) end
  table.insert(side.leases_taken, lease)
end

local function take_money(sides, lease, nanos)
  local text = string.format('%.0f', nanos)
  for _, side in ipairs(sides) do text = text .. MONEY.take(side.budgets, nanos) end
  table.insert(holds, lease)
  table.insert(holds, text)
end

-- Admits a request, in memory.
function COMMIT.take(sides, lease, verdict)
  table.insert(admitted, lease)
  for _, side in ipairs(sides) do take(side, lease) end
  if verdict.hold then take_money(sides, lease, verdict.hold) end
end

local function write_leases(side, is_new_minute)
  local lease_key = side.lease_key
  local ends_and_leases = {}
  for _, lease in ipairs(side.leases_taken) do
    table.insert(ends_and_leases, CALL.lease_ends)
    table.insert(ends_and_leases, lease)
  end
  call('ZADD', lease_key, unpack(ends_and_leases))
  if is_new_minute or side.leases_stored == 0 then
    call('PEXPIRE', lease_key, LEASES_TTL_MS)
  end
  if is_new_minute then
    call('ZREMRANGEBYSCORE', lease_key, '-inf', CALL.now - DEAD_LEASE_MS)
  end
end

local function write_side(side)
  if #side.leases_taken == 0 then return end
  local is_user = side.who == 'user'
  LOAD.save_state(side)
  MONEY.commit(side.budgets)
  if CALL.unit ~= '' and not is_user then
    local today = side.units_today
    STATE.write_unit(side.state_key, CALL.unit, today.day, today.used)
  end
  local is_new_minute =
    floor(CALL.now / MINUTE_MS) ~= floor(side.admitted_at / MINUTE_MS)
  if side.lease_key then write_leases(side, is_new_minute) end
  if not is_new_minute then return end
  -- The rest is needed only once a minute.
  if not is_user then call('HSET', side.state_key, 'lu', CALL.now_unix) end
  call('PEXPIRE', side.state_key, is_user and END_USER.TTL_MS or STATE_TTL_MS)
end

-- The slots of videos, which outlast their requests.
local function write_videos(video_key)
  call('ZREMRANGEBYSCORE', video_key, '-inf', CALL.now - DEAD_VIDEO_MS)
  for _, lease in ipairs(admitted) do
    call('ZADD', video_key, floor(CALL.now) + VIDEO_START_MS, lease)
  end
  call('PEXPIRE', video_key, VIDEO_LEASES_TTL_MS)
end

-- Writes what was taken.
function COMMIT.write()
  if #admitted == 0 then return end
  for _, side in ipairs(LOAD.sides) do write_side(side) end
  for _, side in pairs(LOAD.users) do write_side(side) end
  if LOAD.end_user.from ~= '' then
    local calendar = LOAD.calendar
    END_USER.touch(KEYS[1], LOAD.users, CALL.now, calendar and calendar[1].window)
  end
  for at = FIRST_VIDEO_KEY, #KEYS do write_videos(KEYS[at]) end
  MONEY.keep_holds(KEYS[1], holds)
end

-- What was used of limits, for the scripts that admit and settle: it stands before
-- them. The layout is described in `shared/keys/limiter_state.ts`: doubles in two kinds
-- of fields, `s` for requests and tokens, and one for each unit that was used.

local NUMBERS, ALL_NUMBERS = '<ddddd', '<ddddddd'
local ALL_BYTES = 56

-- Reads what was used of requests and tokens; nil: nothing. A state of an earlier
-- version does not say under which limits it was written.
local function read(limiter_key)
  local packed = redis.call('HGET', limiter_key, 's')
  if not packed then return nil end
  local admitted_at, requests_full_at, tokens_full_at, day, tokens_today, requests_limit,
    tokens_limit
  if #packed == ALL_BYTES then
    admitted_at, requests_full_at, tokens_full_at, day, tokens_today, requests_limit,
      tokens_limit = struct.unpack(ALL_NUMBERS, packed)
  else
    admitted_at, requests_full_at, tokens_full_at, day, tokens_today =
      struct.unpack(NUMBERS, packed)
  end
  return {
    admitted_at = admitted_at,
    requests_full_at = requests_full_at,
    tokens_full_at = tokens_full_at,
    day = day,
    tokens_today = tokens_today,
    requests_per_minute = requests_limit,
    tokens_per_minute = tokens_limit,
  }
end

-- What a side has used that was never admitted.
local function unused(today)
  return {
    admitted_at = 0,
    requests_full_at = 0,
    tokens_full_at = 0,
    day = today,
    tokens_today = 0,
  }
end

local function write(limiter_key, state)
  redis.call('HSET', limiter_key, 's', struct.pack(ALL_NUMBERS, state.admitted_at,
    state.requests_full_at, state.tokens_full_at, state.day, state.tokens_today,
    state.requests_per_minute, state.tokens_per_minute))
end

-- Reads the day on which a unit was last used, and how much of it; nil: never.
local function read_unit(limiter_key, unit)
  local packed = redis.call('HGET', limiter_key, unit)
  if not packed then return nil end
  local day, used = struct.unpack('<dd', packed)
  return { day = day, used = used }
end

local function write_unit(limiter_key, unit, of_day)
  redis.call('HSET', limiter_key, unit, struct.pack('<dd', of_day.day, of_day.used))
end

return {
  read = read,
  unused = unused,
  write = write,
  read_unit = read_unit,
  write_unit = write_unit,
}

-- Reads what the edges have counted against the limits of an owner and of a key.
--
-- KEYS  lim:…, lease:… and lease:…:video of the owner, then of the key
-- ARGV  the fields of units in the state
-- Reply unix ms, then a list of numbers for each: running requests, videos being made,
--       the first five numbers of the state, day and count of each unit; 0: never used
--
-- Constants: LIMITER_EPOCH_MS STATE_FIELD

local call = redis.call

local NAMES_OF_EACH = 3
local STATE_NUMBERS = 5
local UNIT_NUMBERS = 2
local DOUBLE_BYTES = 8

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Appends the first doubles of a field, which is false if there is none. They are
-- replied as text, because an integer reply would cut off their fractions.
local function append_doubles(numbers, packed, count)
  packed = packed or ''
  for nth = 1, count do
    local number = 0
    if #packed >= DOUBLE_BYTES * nth then
      number = struct.unpack('<d', packed, DOUBLE_BYTES * (nth - 1) + 1)
    end
    table.insert(numbers, string.format('%.17g', number))
  end
end

local reply = { now_ms }
for at = 1, #KEYS, NAMES_OF_EACH do
  local limiter, leases, video_leases = KEYS[at], KEYS[at + 1], KEYS[at + 2]
  local numbers = {}
  for _, key in ipairs({ leases, video_leases }) do
    table.insert(numbers, call('ZCOUNT', key, now_ms - LIMITER_EPOCH_MS, '+inf'))
  end
  append_doubles(numbers, call('HGET', limiter, STATE_FIELD), STATE_NUMBERS)
  for _, field in ipairs(ARGV) do
    append_doubles(numbers, call('HGET', limiter, field), UNIT_NUMBERS)
  end
  table.insert(reply, numbers)
end
return reply

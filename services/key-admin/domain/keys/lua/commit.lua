-- One lifecycle change of keys, all or nothing: checks every step, then takes them all.
--
-- KEYS  1 keys:{owner}  2 audit:{owner}  3 the `once` key, then a record for each step
-- ARGV  1 the plan as JSON: `{ steps, nowMs, isOnce, carried }`. A step has `action`,
--         `keyId`, `version` (that the stored key must have; 0: any), `untilMs` (when
--         the record of an unlisted key is deleted), `fields` and `audit` (as HSET and
--         XADD take them). `carried` has pairs of names: what was spent under the first
--         one, a new key begins with under the second one (`carried_spend.ts`)
-- Reply `done`, or why nothing was changed, as `REFUSALS` has it
--
-- Constants: KEYS_PER_OWNER_MAX AUDIT_ENTRIES_MAX ONCE_S VERSION_FIELD STATE_FIELD
-- EXPIRES_AT_FIELD

local call = redis.call

local listed_keys, audit_log, once_mark = KEYS[1], KEYS[2], KEYS[3]
local FIRST_RECORD = 4
local plan = cjson.decode(ARGV[1])
local now_ms = tonumber(plan.nowMs)

-- Why a key cannot be created; nil if it can be.
local function creation_refusal(step)
  local is_listed = not step.untilMs
  if is_listed and call('ZCARD', listed_keys) >= KEYS_PER_OWNER_MAX then
    return 'too_many'
  end
end

-- Why a stored key cannot be changed; nil if it can be. Sets the step's next version.
local function change_refusal(step, record)
  local stored = call('HMGET', record, VERSION_FIELD, STATE_FIELD, EXPIRES_AT_FIELD)
  local version, state = tonumber(stored[1]), stored[2]
  if not version then return 'not_found' end
  if step.version > 0 and step.version ~= version then return 'changed' end
  local expires_at_ms = tonumber(stored[3])
  local is_expired = expires_at_ms > 0 and expires_at_ms <= now_ms
  if step.action == 'key.rotated' and (is_expired or state ~= 'enabled') then
    return 'not_rotatable'
  end
  step.next_version = version + 1
end

local function write_record(step, record)
  call('HSET', record, unpack(step.fields))
  if step.action == 'key.enabled' then call('DEL', record .. ':stop') end
  if step.untilMs then
    call('PEXPIREAT', record, step.untilMs)
  elseif step.action == 'key.created' then
    call('ZADD', listed_keys, plan.nowMs, step.keyId)
  else
    call('HSET', record, VERSION_FIELD, step.next_version)
  end
end

local function delete_record(step, record)
  call('DEL', record)
  call('ZREM', listed_keys, step.keyId)
end

-- Lets a budget begin where another one is, until when that is kept. What running
-- requests hold of it comes back to the other one.
local function carry_spend(from, to)
  if call('COPY', from, to) == 1 then call('HDEL', to, 'h') end
end

if plan.isOnce and call('EXISTS', once_mark) == 1 then return 'already_made' end
for nth, step in ipairs(plan.steps) do
  local record = KEYS[FIRST_RECORD + nth - 1]
  local refusal
  if step.action == 'key.created' then
    refusal = creation_refusal(step)
  else
    refusal = change_refusal(step, record)
  end
  if refusal then return refusal end
end
for _, names in ipairs(plan.carried) do carry_spend(names[1], names[2]) end
for nth, step in ipairs(plan.steps) do
  local record = KEYS[FIRST_RECORD + nth - 1]
  if step.action == 'key.deleted' then
    delete_record(step, record)
  else
    write_record(step, record)
  end
  call('XADD', audit_log, 'MAXLEN', '~', AUDIT_ENTRIES_MAX, '*', unpack(step.audit))
end
if plan.isOnce then call('SET', once_mark, '1', 'EX', ONCE_S) end
return 'done'

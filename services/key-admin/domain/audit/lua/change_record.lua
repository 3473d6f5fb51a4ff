-- Changes a record of an account, all or nothing: its state and limits, or the defaults
-- of its new keys.
--
-- KEYS  1 the record, a hash  2 audit:{account}  3 proj:{project}, which must exist if
--         it is given
-- ARGV  1 the plan as JSON: `{ version, fields, named, audits }`. `version`: that the
--         record must have; -1: any. `fields` and `named`: what is written to the first
--         and the third key, as HSET takes it. `audits`: entries as XADD takes them
-- Reply the new version, or why nothing was changed: `changed` or `not_found`
--
-- Constants: AUDIT_ENTRIES_MAX VERSION_FIELD

local call = redis.call

local record, audit_log, project = KEYS[1], KEYS[2], KEYS[3]
local plan = cjson.decode(ARGV[1])

if project and call('EXISTS', project) == 0 then return 'not_found' end
local version = tonumber(call('HGET', record, VERSION_FIELD) or '0')
if plan.version >= 0 and plan.version ~= version then return 'changed' end
if #plan.fields > 0 then call('HSET', record, unpack(plan.fields)) end
if #plan.named > 0 then call('HSET', project, unpack(plan.named)) end
call('HSET', record, VERSION_FIELD, version + 1)
for _, entry in ipairs(plan.audits) do
  call('XADD', audit_log, 'MAXLEN', '~', AUDIT_ENTRIES_MAX, '*', unpack(entry))
end
return version + 1

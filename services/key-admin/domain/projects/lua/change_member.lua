-- Adds a member to a project, changes the role of one, or removes one, with its entry
-- in the audit log. Checks the rights of whoever does it in the same moment, so that of
-- two admins who remove each other only one succeeds.
--
-- KEYS  1 proj:{project}  2 members:{project}  3 audit:{project}
-- ARGV  1 the plan as JSON: `{ memberId, role, byId, isNew, audit }`. An empty `role`
--         removes the member. `byId` is the member who does it; empty: an operator, who
--         may do everything. `audit` is as XADD takes it
-- Reply `done`, `same` when the member has this role already, or why nothing was
--         changed, as `REFUSALS` has it
--
-- Constants: MEMBERS_MAX AUDIT_ENTRIES_MAX

local call = redis.call

local project, members, audit_log = KEYS[1], KEYS[2], KEYS[3]
local plan = cjson.decode(ARGV[1])

local function is_last_admin()
  local admins = 0
  for _, role in ipairs(call('HVALS', members)) do
    if role == 'admin' then admins = admins + 1 end
  end
  return admins == 1
end

-- Why the change is refused; nil if it is not.
local function refusal(before)
  if call('EXISTS', project) == 0 then return 'not_found' end
  local is_operator = plan.byId == ''
  local is_leaving = plan.byId == plan.memberId and plan.role == ''
  if not is_operator then
    local role = call('HGET', members, plan.byId)
    if not role then return 'not_found' end
    if role ~= 'admin' and not is_leaving then return 'not_admin' end
  end
  if plan.isNew and before then return 'is_member' end
  if not plan.isNew and not before then return 'not_member' end
  if not before and call('HLEN', members) >= MEMBERS_MAX then return 'too_many' end
  local loses_admin = before == 'admin' and plan.role ~= 'admin'
  if loses_admin and not is_operator and is_last_admin() then return 'last_admin' end
end

local before = call('HGET', members, plan.memberId)
local why = refusal(before)
if why then return why end
if before == plan.role then return 'same' end
if plan.role == '' then
  call('HDEL', members, plan.memberId)
else
  call('HSET', members, plan.memberId, plan.role)
end
call('XADD', audit_log, 'MAXLEN', '~', AUDIT_ENTRIES_MAX, '*', unpack(plan.audit))
return 'done'

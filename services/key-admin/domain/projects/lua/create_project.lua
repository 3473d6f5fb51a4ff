-- Creates a project with its limits and, if given, its first admin.
--
-- KEYS  1 proj:{project}  2 own:{project}  3 members:{project}  4 audit:{project}
-- ARGV  1 the plan as JSON: `{ project, limits, adminId, audit }`, fields as HSET and
--         XADD take them; an empty `adminId` leaves the project without a member
-- Reply `done`

local call = redis.call

local plan = cjson.decode(ARGV[1])
call('HSET', KEYS[1], unpack(plan.project))
call('HSET', KEYS[2], unpack(plan.limits))
if plan.adminId ~= '' then call('HSET', KEYS[3], plan.adminId, 'admin') end
call('XADD', KEYS[4], '*', unpack(plan.audit))
return 'done'

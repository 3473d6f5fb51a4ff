import { defineScript, type RedisScript } from "@gateway/shared/redis/script";

/**
 * One lifecycle change, all or nothing: records, list, search index and audit
 * entries of one owner, which share a slot.
 *
 * KEYS: 1 `keys:{owner}`, 2 `find:{owner}`, 3 `audit:{owner}`, 4 the `once` key,
 * then one record key per change.
 * ARGV: 1 the plan as JSON ({@link CommitPlan} of `commit.ts`).
 * Reply: `{"DONE"}`, `{"ONCE", <key id made before>}`, `{"GONE"}` (no such
 * record), `{"CHANGED"}` (another version), `{"FULL"}` (too many keys).
 */
export const COMMIT_SCRIPT: RedisScript = defineScript(
  "key-admin/commit",
  `
local plan = cjson.decode(ARGV[1])
local added = 0
if plan.once then
  local made = redis.call('GET', KEYS[4])
  if made then return {'ONCE', made} end
end
for i, change in ipairs(plan.changes) do
  local version = redis.call('HGET', KEYS[4 + i], 'version')
  if change.expect == '' then
    added = added + 1
    if version then return {'CHANGED'} end
  elseif not version then
    return {'GONE'}
  elseif version ~= change.expect then
    return {'CHANGED'}
  end
end
if added > 0 and redis.call('ZCARD', KEYS[1]) + added > plan.keysMax then
  return {'FULL'}
end
for i, change in ipairs(plan.changes) do
  for _, member in ipairs(change.unindex) do redis.call('ZREM', KEYS[2], member) end
  for _, member in ipairs(change.index) do redis.call('ZADD', KEYS[2], 0, member) end
  if #change.fields == 0 then
    redis.call('DEL', KEYS[4 + i])
    redis.call('ZREM', KEYS[1], change.id)
  else
    redis.call('HSET', KEYS[4 + i], unpack(change.fields))
    if change.expect == '' then redis.call('ZADD', KEYS[1], change.createdAtMs, change.id) end
  end
end
for _, entry in ipairs(plan.audit) do
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', plan.auditMax, '*', unpack(entry))
end
if plan.once then
  redis.call('SET', KEYS[4], plan.changes[1].id, 'EX', plan.once)
end
return {'DONE'}
`,
);

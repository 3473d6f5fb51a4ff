import {
  auditKey,
  type KeyRecord,
  keysKey,
  recordKey,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { RedisLink } from "@gateway/shared/redis/link";
import { defineScript } from "@gateway/shared/redis/script";
import { z } from "zod";
import {
  type Actor,
  AUDIT_ENTRIES_MAX,
  type AuditAction,
  type AuditEntry,
  encodeAudit,
} from "../audit/audit_log.ts";
import { findKey, onceKey } from "../store/names.ts";
import { describeChange, encodeKey } from "./key_record.ts";
import { indexMembersOf } from "./search_terms.ts";

/** A form sent twice within this time creates one key. */
const ONCE_SECONDS = 24 * 3600;

/**
 * One lifecycle change, all or nothing: records, list, search index and audit
 * entries of one owner, which share a slot.
 *
 * KEYS: 1 `keys:{owner}`, 2 `find:{owner}`, 3 `audit:{owner}`, 4 the `once` key,
 * then one record key per change.
 * ARGV: 1 the plan as JSON, see {@link commit}.
 * Reply: a {@link CommitResult}.
 */
const COMMIT_SCRIPT = defineScript(
  "key-admin/commit",
  `
local plan = cjson.decode(ARGV[1])
local added = 0
if plan.once and redis.call('EXISTS', KEYS[4]) == 1 then return 'already_made' end
for i, change in ipairs(plan.changes) do
  local version = redis.call('HGET', KEYS[4 + i], 'version')
  if change.expect == '' then
    added = added + 1
    if version then return 'changed' end
  elseif not version then
    return 'not_found'
  elseif version ~= change.expect then
    return 'changed'
  end
end
if added > 0 and redis.call('ZCARD', KEYS[1]) + added > plan.keysMax then
  return 'too_many'
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
return 'done'
`,
);

/** What happens to one key: made (no `before`), changed, or deleted (no `after`). */
export type KeyChange =
  & { action: AuditAction; detail?: string }
  & (
    | { before: KeyRecord | null; after: KeyRecord }
    | { before: KeyRecord; after: KeyRecord | null }
  );

/** Changes of one owner's keys that are made together or not at all. */
export interface Commit {
  ownerId: string;
  actor: Actor;
  /** At least one. */
  changes: readonly KeyChange[];
  /** Digest of the form's nonce: a second commit with it changes nothing. */
  once: string | null;
}

/** How a commit ended. Unless it is done, nothing was changed. */
export type CommitResult = z.infer<typeof commitResult>;
const commitResult = z.enum([
  "done",
  "already_made",
  "not_found",
  /** The stored key is not the `before` of the change. */
  "changed",
  "too_many",
]);

/** Makes the changes in one step if every key still has the version of its `before`. */
export async function commit(
  redis: RedisLink,
  { ownerId, actor, changes, once }: Commit,
): Promise<CommitResult> {
  const ids = changes.map((change) => keyOf(change).id);
  const plan = {
    changes: changes.map(({ before, after }, at) => ({
      id: ids[at],
      expect: before === null ? "" : String(before.version),
      fields: after === null ? [] : encodeKey(after),
      createdAtMs: String(after?.createdAtMs ?? 0),
      ...indexChange(before, after),
    })),
    audit: changes.map((change) => encodeAudit(auditEntry(change, actor))),
    keysMax: KEY_LIMITS.keysPerOwnerMax,
    auditMax: AUDIT_ENTRIES_MAX,
    ...(once === null ? {} : { once: ONCE_SECONDS }),
  };
  return commitResult.parse(
    await redis.evalScript(COMMIT_SCRIPT, [
      keysKey(ownerId),
      findKey(ownerId),
      auditKey(ownerId),
      onceKey(ownerId, once ?? "none"),
      ...ids.map((keyId) => recordKey({ ownerId, keyId })),
    ], [JSON.stringify(plan)]),
  );
}

function keyOf({ before, after }: KeyChange): KeyRecord {
  const key = after ?? before;
  if (key === null) throw new Error("A change needs a key before or after it");
  return key;
}

function auditEntry(change: KeyChange, actor: Actor): AuditEntry {
  const { id, hint, description } = keyOf(change);
  const { action, before, after } = change;
  const detail = change.detail ??
    (before && after ? describeChange(before, after) : "");
  return { action, ...actor, keyId: id, hint, description, detail };
}

function indexChange(before: KeyRecord | null, after: KeyRecord | null) {
  const old = before === null ? [] : indexMembersOf(before);
  const next = after === null ? [] : indexMembersOf(after);
  return {
    unindex: old.filter((member) => !next.includes(member)),
    index: next.filter((member) => !old.includes(member)),
  };
}

import { isKeyId } from "@gateway/shared/keys/key";
import {
  hashKey,
  type KeyRecord,
  recordKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { confirmDurable } from "../store/durability.ts";
import { barrierKey } from "../store/names.ts";
import { asFields } from "../store/reply.ts";
import { type AuditAction, auditEntry } from "../audit/audit.ts";
import { type Commit, commit } from "./commit.ts";
import { describeChange } from "./key_changes.ts";
import { decodeKey } from "./key_codec.ts";
import type {
  Changed,
  KeyStoreDeps,
  Made,
  Refusal,
  Target,
} from "./lifecycle.ts";

/** Steps that read a key, make its next version of it, and write that if nobody was faster. */

/** Somebody else's changes are waited out this often when the caller named no version. */
const TRIES_MAX = 8;

/** Makes the next version of a key with `step`. Nothing to change is done already. */
export async function change(
  deps: KeyStoreDeps,
  target: Target,
  action: AuditAction,
  step: (key: KeyRecord) => KeyRecord,
): Promise<Changed> {
  return await retry(target, async (): Promise<Changed> => {
    const found = await readForChange(deps.redis, target);
    if (!found.ok) return found;
    const before = found.key;
    const after = step(before);
    const detail = describeChange(before, after);
    if (detail === "" && before.state === after.state) {
      await confirmEarlier(deps.writer);
      return found;
    }
    return await commitChange(deps, {
      ownerId: target.ownerId,
      changes: [{ before, after }],
      audit: [auditEntry(action, after, target.actor, detail)],
      once: null,
    }, after);
  });
}

/** Deletes a key: its record first. */
export async function remove(
  deps: KeyStoreDeps,
  target: Target,
): Promise<Changed> {
  const removed = await retry(target, async (): Promise<Changed> => {
    const found = await readForChange(deps.redis, target);
    if (!found.ok) return found;
    return await commitChange(deps, {
      ownerId: target.ownerId,
      changes: [{ before: found.key, after: null }],
      audit: [auditEntry("key.deleted", found.key, target.actor, "")],
      once: null,
    }, found.key);
  });
  // Only tidies up: without its record the look-up leads nowhere.
  if (removed.ok) await deps.writer.command(["DEL", hashKey(removed.key.hash)]);
  return removed;
}

async function commitChange(
  deps: KeyStoreDeps,
  plan: Commit,
  key: KeyRecord,
): Promise<Changed> {
  const result = await commit(deps.writer, plan);
  if (!result.done) return { ok: false, reason: result.reason };
  await confirmDurable(deps.writer);
  return { ok: true, key };
}

/**
 * What is asked for is so already, so there is nothing to change. Somebody else's
 * change may have made it so a moment ago and not be on disk yet: a write after
 * it, once on disk, says that the earlier one is there too.
 */
async function confirmEarlier(writer: RedisLink): Promise<void> {
  await writer.command(["SET", barrierKey, "1", "EX", "60"]);
  await confirmDurable(writer);
}

/** Repeats a change that met another one, when the caller did not insist on a version. */
export async function retry<T extends Changed | Made>(
  { version }: Target,
  attempt: () => Promise<T>,
): Promise<T> {
  for (let tries = 1;; tries++) {
    const result = await attempt();
    const mayRepeat = version === null && tries < TRIES_MAX;
    if (result.ok || result.reason !== "changed" || !mayRepeat) return result;
  }
}

/** The key in the version that the caller saw. */
export async function readForChange(
  redis: RedisLink,
  { ownerId, keyId, version }: Target,
): Promise<{ ok: true; key: KeyRecord } | { ok: false; reason: Refusal }> {
  const key = await get(redis, ownerId, keyId);
  if (key === null) return { ok: false, reason: "not_found" };
  if (version !== null && version !== key.version) {
    return { ok: false, reason: "changed" };
  }
  return { ok: true, key };
}

/** Null when the owner has no such key. */
export async function get(
  redis: RedisLink,
  ownerId: string,
  keyId: string,
): Promise<KeyRecord | null> {
  if (!isKeyId(keyId)) return null;
  const fields = asFields(
    await redis.command(["HGETALL", recordKey({ ownerId, keyId })]),
  );
  return fields.size === 0 ? null : decodeKey({ ownerId, keyId }, fields);
}

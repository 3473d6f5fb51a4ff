import {
  auditKey,
  type KeyRecord,
  keysKey,
  recordKey,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import {
  AUDIT_ENTRIES_MAX,
  type AuditEntry,
  encodeAudit,
} from "../audit/audit.ts";
import { COMMIT_SCRIPT } from "./commit.lua.ts";
import { encodeKey } from "./key_codec.ts";
import { indexMembersOf } from "./search_terms.ts";
import { findKey, onceKey } from "../store/names.ts";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asList, asText } from "../store/reply.ts";

/** A form that was sent twice within this time makes one key. */
const ONCE_SECONDS = 24 * 3600;

/** What happens to one key: made (no `before`), changed, or deleted (no `after`). */
export interface KeyChange {
  before: KeyRecord | null;
  after: KeyRecord | null;
}

/** Changes of one owner's keys that are made together or not at all. */
export interface Commit {
  ownerId: string;
  /** At least one. */
  changes: readonly KeyChange[];
  audit: readonly AuditEntry[];
  /** Digest of the form's nonce: a second commit with it changes nothing. */
  once: string | null;
}

/** What became of a commit. Unless it is done, nothing was changed. */
export type CommitResult =
  | { done: true }
  | { done: false; reason: "already_made"; keyId: string }
  | { done: false; reason: "not_found" | "changed" | "too_many" };

/** Makes the changes in one step if every key still has the version of its `before`. */
export async function commit(
  redis: RedisLink,
  { ownerId, changes, audit, once }: Commit,
): Promise<CommitResult> {
  const ids = changes.map(({ before, after }) => idOf(before ?? after));
  const plan = {
    changes: changes.map(({ before, after }, at) => ({
      id: ids[at],
      expect: before === null ? "" : String(before.version),
      fields: after === null ? [] : encodeKey(after),
      createdAtMs: String(after?.createdAtMs ?? 0),
      ...indexChange(before, after),
    })),
    audit: audit.map(encodeAudit),
    keysMax: KEY_LIMITS.keysPerOwnerMax,
    auditMax: AUDIT_ENTRIES_MAX,
    ...(once === null ? {} : { once: ONCE_SECONDS }),
  };
  const reply = asList(
    await redis.evalScript(COMMIT_SCRIPT, [
      keysKey(ownerId),
      findKey(ownerId),
      auditKey(ownerId),
      onceKey(ownerId, once ?? "none"),
      ...ids.map((keyId) => recordKey({ ownerId, keyId })),
    ], [JSON.stringify(plan)]),
  );
  return toResult(reply);
}

function idOf(key: KeyRecord | null): string {
  if (key === null) throw new Error("A change needs a key before or after it");
  return key.id;
}

function indexChange(before: KeyRecord | null, after: KeyRecord | null) {
  const old = before === null ? [] : indexMembersOf(before);
  const next = after === null ? [] : indexMembersOf(after);
  return {
    unindex: old.filter((member) => !next.includes(member)),
    index: next.filter((member) => !old.includes(member)),
  };
}

function toResult([word, keyId]: unknown[]): CommitResult {
  switch (asText(word)) {
    case "DONE":
      return { done: true };
    case "ONCE":
      return { done: false, reason: "already_made", keyId: asText(keyId) };
    case "GONE":
      return { done: false, reason: "not_found" };
    case "CHANGED":
      return { done: false, reason: "changed" };
    case "FULL":
      return { done: false, reason: "too_many" };
    default:
      throw new Error(`Unexpected reply of the commit script: ${word}`);
  }
}

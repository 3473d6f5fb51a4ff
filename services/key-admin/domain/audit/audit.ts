import type { KeyRecord } from "@gateway/shared/keys/record";

/**
 * The audit log of an owner: a stream that only grows, one entry per lifecycle
 * change and sign-in event. The entry's id holds its time by the clock of
 * Redis. An entry never holds a key value or its hash.
 */

/** About this many entries are kept per owner; the oldest go first. */
export const AUDIT_ENTRIES_MAX = 500_000;

/** What can happen, as `thing.happened`. Lists are narrowed by the part before the dot. */
export type AuditAction =
  | "key.created"
  | "key.edited"
  | "key.disabled"
  | "key.enabled"
  | "key.deleted"
  | "key.rotated"
  | "key.stop_requested"
  | "owner.invited"
  | "owner.limits_changed"
  | "account.reset_link_made"
  | "session.signed_in"
  | "session.confirmed"
  | "session.refused"
  | "session.signed_out"
  | "session.revoked"
  | "account.created"
  | "account.password_changed"
  | "account.second_factor_on"
  | "account.second_factor_off"
  | "account.recovery_code_used";

/** Who did it and from where. */
export interface Actor {
  /** An e-mail address, or `command line`. */
  by: string;
  /** Address of the client, empty for the command line. */
  ip: string;
}

/** One line of the log. */
export interface AuditEntry extends Actor {
  action: AuditAction;
  /** Empty when the entry is not about a key. */
  keyId: string;
  hint: string;
  description: string;
  /** What changed, for people: `requests per minute 0 → 60`. */
  detail: string;
}

/** An entry about a key. */
export function auditEntry(
  action: AuditAction,
  { id, hint, description }: KeyRecord,
  { by, ip }: Actor,
  detail: string,
): AuditEntry {
  return { action, by, ip, keyId: id, hint, description, detail };
}

/** An entry's fields, flat as XADD wants them. Empty ones are left out. */
export function encodeAudit(entry: AuditEntry): string[] {
  const fields: [string, string][] = [
    ["action", entry.action],
    ["by", entry.by],
    ["ip", entry.ip],
    ["key", entry.keyId],
    ["hint", entry.hint],
    ["description", entry.description],
    ["detail", entry.detail],
  ];
  return fields.filter(([, value]) => value !== "").flat();
}

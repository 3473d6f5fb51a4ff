/**
 * The records of accounts that have a version: state and limits of an owner or a
 * project, and the defaults of its new keys.
 */
import { auditKey, KEY_FIELDS } from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { createPersist } from "../store/durability.ts";
import { asNumber, type Fields } from "../store/redis.ts";
import {
  AUDIT_ENTRIES_MAX,
  type AuditEntry,
  encodeAudit,
} from "./audit_log.ts";
import changeRecordLua from "./lua/change_record.lua" with { type: "text" };

const CHANGE_SCRIPT = defineScript(
  "key-admin/change_record",
  changeRecordLua,
  { AUDIT_ENTRIES_MAX, VERSION_FIELD: KEY_FIELDS.version },
);

/** The account has another version than the one that a change is about. */
export class AccountChanged extends Error {
  override name = "AccountChanged";
  override message =
    "It was changed in the meantime. Look at what it is now and try again";
}

/** A change of a record, with what the account's audit log says of it. */
export interface RecordChange {
  /** The hash that has the version. */
  readonly record: string;
  /** What is written to it, as HSET takes it. */
  readonly fields: readonly string[];
  /** A further hash of the account, which must exist, and what is written to it. */
  readonly beside?: {
    readonly key: string;
    readonly fields: readonly string[];
  };
  /** The version that the record must have; null: any. */
  readonly version: number | null;
  readonly entries: readonly AuditEntry[];
}

/** The version of a record; 0: it has not been changed since it was made. */
export const versionOf = (fields: Fields): number =>
  asNumber(fields[KEY_FIELDS.version] ?? "0");

/**
 * Makes a change in one step, and resolves when it is on disk. Throws
 * {@link AccountChanged}; false if what is beside the record does not exist.
 */
export type ChangeRecord = (
  accountId: string,
  change: RecordChange,
) => Promise<boolean>;

/** Makes the function that changes records. */
export function createRecordChanger(writer: RedisLink): ChangeRecord {
  const persist = createPersist(writer);
  return async (accountId, { record, fields, beside, version, entries }) => {
    const plan = {
      version: version ?? -1,
      fields,
      named: beside?.fields ?? [],
      audits: entries.map(encodeAudit),
    };
    const result = await writer.evalScript(CHANGE_SCRIPT, {
      keys: [record, auditKey(accountId), ...beside ? [beside.key] : []],
      args: [JSON.stringify(plan)],
    });
    if (result === "changed") throw new AccountChanged();
    if (result === "not_found") return false;
    await persist();
    return true;
  };
}

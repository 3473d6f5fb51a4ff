/** A key as commands and the admin API show it. */
import { networkText } from "@gateway/shared/keys/networks";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { endUsersWords } from "./end_users.ts";
import { isExpired } from "./key_record.ts";
import * as settings from "./settings.ts";

/** A time as `--json` prints it: ISO 8601 in UTC; null stays null. */
export const isoTime = (timeMs: number | null): string | null =>
  timeMs === null ? null : new Date(timeMs).toISOString();

/** A key as `--json` prints it. Times are ISO 8601 in UTC. */
export type KeyJson = {
  id: string;
  state: KeyRecord["state"];
  expired: boolean;
  description: string;
  hint: string;
  owner_id: string;
  /** The id of the owner who created it; null if the command line did. */
  created_by: string | null;
  scopes: KeyRecord["scopes"];
  models: readonly string[];
  allowed_cidrs: readonly string[];
  /** Limits of each end user, as the option takes them; empty: none. */
  end_users: string;
  /** `batch`: its requests wait behind all others of its account. */
  priority: KeyRecord["priority"];
  /** For how long its answers are kept, where requests do not say it; 0: not at all. */
  keep_seconds: number;
  /**
   * By the words of their names, `tokens_per_day`; 0 means no limit. Budgets are
   * decimals.
   */
  limits: Record<string, string | number>;
  created_at: string | null;
  /** Null if it never expires. */
  expires_at: string | null;
  /** The id of the other key of a rotation. */
  replaces?: string;
  replaced_by?: string;
  version: number;
};

/** A key in the form of `--json`, without its hash. */
export function toJson(key: KeyRecord, nowMs: number): KeyJson {
  return {
    id: key.id,
    state: key.state,
    expired: isExpired(key, nowMs),
    description: key.description,
    hint: key.hint,
    owner_id: key.ownerId,
    created_by: key.createdBy,
    scopes: key.scopes,
    models: key.models,
    allowed_cidrs: key.networks.map(networkText),
    end_users: endUsersWords(key.endUsers),
    priority: key.priority,
    keep_seconds: key.keepSeconds,
    limits: settings.namedLimits(key.limits, "_"),
    created_at: isoTime(key.createdAtMs),
    expires_at: isoTime(key.expiresAtMs),
    ...key.replaces && { replaces: key.replaces[0] },
    ...key.replacedBy && { replaced_by: key.replacedBy[0] },
    version: key.version,
  };
}

import type { RandomBytes } from "@gateway/shared/ids";
import type { KeyRecord } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { Actor } from "../audit/audit.ts";
import type { KeySettings } from "./settings.ts";

/** What changes of keys are asked for with, and how they end. */

/** A wish for a new key. */
export interface CreateOrder {
  ownerId: string;
  settings: KeySettings;
  actor: Actor;
  /** Digest of a form's nonce; the same one makes one key only. */
  once?: string;
}

/** Which key, in which version as the caller saw it, and who asks. */
export interface Target {
  ownerId: string;
  keyId: string;
  /** Null: whatever version is there. Then a concurrent change is waited out, not refused. */
  version: number | null;
  actor: Actor;
}

/** Why a change was not made. Nothing was changed then. */
export type Refusal =
  | "not_found"
  | "changed"
  | "too_many"
  | "already_made"
  | "not_rotatable";

/** The key as it is after the change; of a deleted one, as it was. */
export type Changed =
  | { ok: true; key: KeyRecord }
  | { ok: false; reason: Refusal };

/** `value` is the full key value. It exists nowhere else. */
export type Made =
  | { ok: true; key: KeyRecord; value: string }
  | { ok: false; reason: Refusal };

/** What the store needs. */
export interface KeyStoreDeps {
  redis: RedisLink;
  /** A connection of its own: waiting for the disk holds back everything behind it. */
  writer: RedisLink;
  randomBytes: RandomBytes;
}

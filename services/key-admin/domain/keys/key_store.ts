import type { RandomBytes } from "@gateway/shared/process/ids";
import {
  hashKeyValue,
  isKeyId,
  keyHint,
  mintKey,
  mintKeyId,
  mintStoreName,
} from "@gateway/shared/keys/key";
import {
  hashKey,
  type KeyRecord,
  type KeyState,
  recordKey,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { defineScript } from "@gateway/shared/redis/script";
import type { Actor, AuditAction, AuditEntry } from "../audit/audit_log.ts";
import { confirmDurable } from "../store/durability.ts";
import { barrierKey, onceKey } from "../store/names.ts";
import { asFields, asList, asNumber } from "../store/reply.ts";
import { type Commit, commit, type CommitResult } from "./commit.ts";
import { type KeyPage, type PageQuery, readPage } from "./key_page.ts";
import { decodeKey, describeChange, isExpired } from "./key_record.ts";
import type { KeySettings } from "./settings.ts";

/** How long the old key works after a rotation. */
export const ROTATION_GRACES_MS: Readonly<Record<string, number>> = {
  now: 0,
  "1h": 3_600_000,
  "24h": 86_400_000,
  "7d": 7 * 86_400_000,
};

/** A change without a version is repeated this often when it meets another one. */
const TRIES_MAX = 8;

/** A wish for a new key. */
export interface CreateKeyInput {
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
export type KeyRefusal = Exclude<CommitResult, "done"> | "not_rotatable";

type Refused = { ok: false; reason: KeyRefusal };

/** The key as it is after the change; of a deleted one, as it was. */
export type ChangeKeyResult = { ok: true; key: KeyRecord } | Refused;

/** `value` is the full key value. It exists nowhere else. */
export type CreateKeyResult =
  | { ok: true; key: KeyRecord; value: string }
  | Refused;

/** What the store needs. */
export interface KeyStoreDeps {
  redis: RedisLink;
  /** A connection of its own: waiting for the disk holds back everything behind it. */
  writer: RedisLink;
  randomBytes: RandomBytes;
}

/**
 * Writes the look-up of a new key, and with the very first one the name of the
 * store: never one without the other, or an edge would doubt a good key.
 *
 * KEYS: 1 the look-up, 2 the name of the store.
 * ARGV: 1 what the look-up says, 2 a name for a store that has none.
 */
const LOOKUP_SCRIPT = defineScript(
  "key-admin/lookup",
  `
redis.call('SET', KEYS[2], ARGV[2], 'NX')
redis.call('SET', KEYS[1], ARGV[1])
return 1
`,
);

/**
 * The lifecycle of API keys. Each change is one atomic script over the owner's
 * slot and is acknowledged only when it is on disk, as far as the server offers
 * that (`store/durability.ts`).
 *
 * The look-up `hash:<sha256>` lies in another slot, so it cannot be part of that
 * script. Its writes are ordered such that a crash between leaves nothing
 * usable and loses nothing:
 * - making a key writes the look-up first. A crash then leaves a look-up to a
 *   record that does not exist, which admission answers with 401; the value was
 *   shown to nobody.
 * - deleting a key deletes the record first. From then on admission finds no
 *   record, whatever the look-up (or an edge's memory of it) says. Key ids are
 *   never used twice, so a look-up that was left behind stays dead.
 */
export class KeyStore {
  readonly #redis: RedisLink;
  readonly #writer: RedisLink;
  readonly #randomBytes: RandomBytes;

  constructor({ redis, writer, randomBytes }: KeyStoreDeps) {
    this.#redis = redis;
    this.#writer = writer;
    this.#randomBytes = randomBytes;
  }

  /** Null when the owner has no such key. */
  async get(ownerId: string, keyId: string): Promise<KeyRecord | null> {
    if (!isKeyId(keyId)) return null;
    const fields = asFields(
      await this.#redis.command(["HGETALL", recordKey({ ownerId, keyId })]),
    );
    return fields.size === 0 ? null : decodeKey({ ownerId, keyId }, fields);
  }

  /** One page of an owner's keys in one bounded call. */
  list(ownerId: string, query: PageQuery): Promise<KeyPage> {
    return readPage(this.#redis, ownerId, query);
  }

  /** Makes a key. */
  async create(
    { ownerId, settings, actor, once }: CreateKeyInput,
  ): Promise<CreateKeyResult> {
    const nowMs = await redisTimeMs(this.#redis);
    return await this.#make(ownerId, settings, nowMs, (key) => ({
      ownerId,
      changes: [{ before: null, after: key }],
      audit: [auditEntry("key.created", key, actor, "")],
      once: once ?? null,
    }));
  }

  /** Makes a key with the same settings; the old one ends after `graceMs`. Only an enabled key that has not expired can be rotated. */
  async rotate(
    target: Target,
    graceMs: number,
    once?: string,
  ): Promise<CreateKeyResult> {
    const { ownerId, actor } = target;
    // The first of two equal forms changed the version that the second one names.
    if (once !== undefined && await this.#wasMade(ownerId, once)) {
      return { ok: false, reason: "already_made" };
    }
    const nowMs = await redisTimeMs(this.#redis);
    const endMs = nowMs + graceMs;
    return await this.#withKey(target, async (old) => {
      if (old.state !== "enabled" || isExpired(old, nowMs)) {
        return { ok: false, reason: "not_rotatable" };
      }
      const retired = nextVersion(old, {
        expiresAtMs: Math.min(old.expiresAtMs ?? endMs, endMs),
      });
      const detail = describeChange(old, retired);
      return await this.#make(ownerId, old, nowMs, (key) => ({
        ownerId,
        changes: [{ before: null, after: key }, {
          before: old,
          after: retired,
        }],
        audit: [
          auditEntry("key.created", key, actor, `replaces ${old.id}`),
          auditEntry("key.rotated", old, actor, detail),
        ],
        once: once ?? null,
      }));
    });
  }

  /** Replaces the settings that are given. */
  edit(
    target: Target,
    settings: Partial<KeySettings>,
  ): Promise<ChangeKeyResult> {
    return this.#change(target, "key.edited", settings);
  }

  /** The next request with the key is refused. */
  disable(target: Target): Promise<ChangeKeyResult> {
    return this.#change(target, "key.disabled", { state: "disabled" });
  }

  /** The next request with the key may pass. */
  enable(target: Target): Promise<ChangeKeyResult> {
    return this.#change(target, "key.enabled", { state: "enabled" });
  }

  /** Deletes a key: its record first. */
  async delete(target: Target): Promise<ChangeKeyResult> {
    const removed = await this.#withKey(
      target,
      async (key) =>
        await this.#commit({
          ownerId: target.ownerId,
          changes: [{ before: key, after: null }],
          audit: [auditEntry("key.deleted", key, target.actor, "")],
          once: null,
        }) ?? { ok: true as const, key },
    );
    // Only tidies up: without its record the look-up leads nowhere.
    if (removed.ok) {
      await this.#writer.command(["DEL", hashKey(removed.key.hash)]);
    }
    return removed;
  }

  async #change(
    target: Target,
    action: AuditAction,
    members: Partial<KeySettings & { state: KeyState }>,
  ): Promise<ChangeKeyResult> {
    return await this.#withKey(target, async (before) => {
      const after = nextVersion(before, members);
      const detail = describeChange(before, after);
      if (detail === "" && before.state === after.state) {
        // Somebody else may have made this change a moment ago: once a write after it is on disk, so is that one.
        await this.#writer.command(["SET", barrierKey, "1", "EX", "60"]);
        await confirmDurable(this.#writer);
        return { ok: true, key: before };
      }
      return await this.#commit({
        ownerId: target.ownerId,
        changes: [{ before, after }],
        audit: [auditEntry(action, after, target.actor, detail)],
        once: null,
      }) ?? { ok: true, key: after };
    });
  }

  /** Runs a change on the key as the caller saw it, and repeats it when it met another one and the caller named no version. */
  async #withKey<T extends ChangeKeyResult>(
    { ownerId, keyId, version }: Target,
    change: (key: KeyRecord) => Promise<T | Refused>,
  ): Promise<T | Refused> {
    for (let tries = 1;; tries++) {
      const key = await this.get(ownerId, keyId);
      if (key === null) return { ok: false, reason: "not_found" };
      if (version !== null && version !== key.version) {
        return { ok: false, reason: "changed" };
      }
      const result = await change(key);
      const mayRepeat = version === null && tries < TRIES_MAX;
      if (result.ok || result.reason !== "changed" || !mayRepeat) return result;
    }
  }

  /** Makes a key: the look-up first, then the record with all that belongs to it. */
  async #make(
    ownerId: string,
    settings: Pick<KeyRecord, keyof KeySettings>,
    nowMs: number,
    planFor: (key: KeyRecord) => Commit,
  ): Promise<CreateKeyResult> {
    const value = mintKey(this.#randomBytes);
    const { description, scopes, models, limits, expiresAtMs } = settings;
    const key: KeyRecord = {
      id: mintKeyId(this.#randomBytes),
      ownerId,
      state: "enabled",
      ...{ description, scopes, models, limits, expiresAtMs },
      hint: keyHint(value),
      hash: hashKeyValue(value),
      createdAtMs: nowMs,
      version: 1,
    };
    const lookup = hashKey(key.hash);
    await this.#writer.evalScript(
      LOOKUP_SCRIPT,
      [lookup, STORE_KEY],
      [`${key.id}:${ownerId}`, mintStoreName(this.#randomBytes)],
    );
    const refused = await this.#commit(planFor(key));
    if (refused === null) return { ok: true, key, value };
    await this.#writer.command(["DEL", lookup]);
    return refused;
  }

  /** Null when the changes are made and on disk. */
  async #commit(plan: Commit): Promise<Refused | null> {
    const result = await commit(this.#writer, plan);
    if (result !== "done") return { ok: false, reason: result };
    await confirmDurable(this.#writer);
    return null;
  }

  async #wasMade(ownerId: string, once: string): Promise<boolean> {
    return await this.#redis.command(["EXISTS", onceKey(ownerId, once)]) === 1;
  }
}

function nextVersion(
  key: KeyRecord,
  members: Partial<KeySettings & { state: KeyState }>,
): KeyRecord {
  return { ...key, ...members, version: key.version + 1 };
}

function auditEntry(
  action: AuditAction,
  { id, hint, description }: KeyRecord,
  { by, ip }: Actor,
  detail: string,
): AuditEntry {
  return { action, by, ip, keyId: id, hint, description, detail };
}

/** Redis' clock is the one that expiry is judged by. */
async function redisTimeMs(redis: RedisLink): Promise<number> {
  const [seconds, micros] = asList(await redis.command(["TIME"])).map(asNumber);
  return (seconds ?? 0) * 1_000 + Math.floor((micros ?? 0) / 1_000);
}

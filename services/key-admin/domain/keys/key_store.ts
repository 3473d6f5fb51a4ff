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
import type { Actor, AuditAction } from "../audit/audit_log.ts";
import { confirmDurable, writeDurably } from "../store/durability.ts";
import { barrierKey, onceKey } from "../store/names.ts";
import type { StoreDeps } from "../store/redis.ts";
import { asList, asNumber, readHash } from "../store/reply.ts";
import {
  type Commit,
  commit,
  type CommitResult,
  type KeyChange,
} from "./commit.ts";
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

/** How often a change without a version is tried when others change the key at the same time. */
const TRIES_MAX = 8;

/** What a new key is made from. */
export interface CreateKeyInput {
  ownerId: string;
  settings: KeySettings;
  actor: Actor;
  /** Digest of a form's nonce; the same one makes one key only. */
  once?: string;
}

/** The key to change, the version the caller saw, and who asks. */
export interface Target {
  ownerId: string;
  keyId: string;
  /** Null: any version. When somebody else changes the key at the same time, the change is tried again. */
  version: number | null;
  actor: Actor;
}

/** Why nothing was changed. */
export type KeyRefusal = Exclude<CommitResult, "done"> | "not_rotatable";

type Refused = { ok: false; reason: KeyRefusal };

/** The key after the change; a deleted one as it was before. */
export type ChangeKeyResult = { ok: true; key: KeyRecord } | Refused;

/** `value` is the full key value. It exists nowhere else. */
export type CreateKeyResult =
  | { ok: true; key: KeyRecord; value: string }
  | Refused;

/**
 * Writes the look-up of a new key, and with the very first one the name of the
 * store: never one without the other, since edges trust look-ups only in a named store.
 *
 * KEYS: 1 the look-up, 2 the name of the store.
 * ARGV: 1 the value of the look-up, 2 the name for a store without one.
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
  readonly #deps: Omit<StoreDeps, "now">;

  constructor(deps: Omit<StoreDeps, "now">) {
    this.#deps = deps;
  }

  /** Null when the owner has no such key. */
  async get(ownerId: string, keyId: string): Promise<KeyRecord | null> {
    if (!isKeyId(keyId)) return null;
    const ids = { ownerId, keyId };
    const fields = await readHash(this.#deps.redis, recordKey(ids));
    return fields.size === 0 ? null : decodeKey(ids, fields);
  }

  /** One page of an owner's keys in one bounded call. */
  list(ownerId: string, query: PageQuery): Promise<KeyPage> {
    return readPage(this.#deps.redis, ownerId, query);
  }

  /** Makes a key. */
  async create(
    { ownerId, settings, actor, once }: CreateKeyInput,
  ): Promise<CreateKeyResult> {
    const nowMs = await redisTimeMs(this.#deps.redis);
    const plan = { ownerId, actor, once: once ?? null, changes: [] };
    return await this.#make(plan, settings, nowMs, "");
  }

  /** Makes a key with the same settings; the old one ends after `graceMs`. Only an enabled key that has not expired can be rotated. */
  async rotate(
    target: Target,
    graceMs: number,
    once: string | null = null,
  ): Promise<CreateKeyResult> {
    const { ownerId, actor } = target;
    // When a form is sent twice, the first has already changed the version that the second names.
    if (once !== null) {
      const madeBefore = ["EXISTS", onceKey(ownerId, once)];
      if (await this.#deps.redis.command(madeBefore) === 1) {
        return { ok: false, reason: "already_made" };
      }
    }
    const nowMs = await redisTimeMs(this.#deps.redis);
    const endMs = nowMs + graceMs;
    return await this.#withKey(target, async (before) => {
      if (before.state !== "enabled" || isExpired(before, nowMs)) {
        return { ok: false, reason: "not_rotatable" };
      }
      const after = nextVersion(before, {
        expiresAtMs: Math.min(before.expiresAtMs ?? endMs, endMs),
      });
      const retired = { action: "key.rotated", before, after } as const;
      const plan = { ownerId, actor, once, changes: [retired] };
      return await this.#make(plan, before, nowMs, `replaces ${before.id}`);
    });
  }

  /** Replaces the settings that are given. */
  edit(
    target: Target,
    settings: Partial<KeySettings>,
  ): Promise<ChangeKeyResult> {
    return this.#change(target, "key.edited", settings);
  }

  /** Refuses the key from the next request on. */
  disable(target: Target): Promise<ChangeKeyResult> {
    return this.#change(target, "key.disabled", { state: "disabled" });
  }

  /** Accepts the key from the next request on. */
  enable(target: Target): Promise<ChangeKeyResult> {
    return this.#change(target, "key.enabled", { state: "enabled" });
  }

  /** Deletes a key: its record first. */
  async delete(target: Target): Promise<ChangeKeyResult> {
    const removed = await this.#change(target, "key.deleted", null);
    // Just tidying up: without the record the look-up leads nowhere.
    if (removed.ok) {
      await this.#deps.writer.command(["DEL", hashKey(removed.key.hash)]);
    }
    return removed;
  }

  /** Changes a key, or deletes it when there are no `members`. */
  #change(
    target: Target,
    action: AuditAction,
    members: Partial<KeySettings & { state: KeyState }> | null,
  ): Promise<ChangeKeyResult> {
    return this.#withKey(target, async (before) => {
      const after = members === null ? null : nextVersion(before, members);
      if (after !== null && !differs(before, after)) {
        // Another request may have just made this change: it is on disk once a later write is.
        const barrier = ["SET", barrierKey, "1", "EX", "60"];
        await writeDurably(this.#deps.writer, barrier);
        return { ok: true, key: before };
      }
      const { ownerId, actor } = target;
      const changes = [{ action, before, after }];
      const plan = { ownerId, actor, once: null, changes };
      return await this.#commit(plan) ?? { ok: true, key: after ?? before };
    });
  }

  /** Changes the key that the caller saw, or tries again when there is a conflict and the caller named no version. */
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

  /** Makes a key together with the changes of the plan: the look-up first, then the record. */
  async #make(
    plan: Commit,
    settings: Pick<KeyRecord, keyof KeySettings>,
    nowMs: number,
    detail: string,
  ): Promise<CreateKeyResult> {
    const { writer, randomBytes } = this.#deps;
    const value = mintKey(randomBytes);
    const { description, scopes, models, limits, expiresAtMs } = settings;
    const key: KeyRecord = {
      id: mintKeyId(randomBytes),
      ownerId: plan.ownerId,
      state: "enabled",
      ...{ description, scopes, models, limits, expiresAtMs },
      hint: keyHint(value),
      hash: hashKeyValue(value),
      createdAtMs: nowMs,
      version: 1,
    };
    const lookup = hashKey(key.hash);
    await writer.evalScript(
      LOOKUP_SCRIPT,
      [lookup, STORE_KEY],
      [`${key.id}:${key.ownerId}`, mintStoreName(randomBytes)],
    );
    const changes: KeyChange[] = [
      { action: "key.created", before: null, after: key, detail },
      ...plan.changes,
    ];
    const refused = await this.#commit({ ...plan, changes });
    if (refused === null) return { ok: true, key, value };
    await writer.command(["DEL", lookup]);
    return refused;
  }

  /** Null when the changes are made and on disk. */
  async #commit(plan: Commit): Promise<Refused | null> {
    const { writer } = this.#deps;
    const result = await commit(writer, plan);
    if (result !== "done") return { ok: false, reason: result };
    await confirmDurable(writer);
    return null;
  }
}

function nextVersion(
  key: KeyRecord,
  members: Partial<KeySettings & { state: KeyState }>,
): KeyRecord {
  return { ...key, ...members, version: key.version + 1 };
}

const differs = (before: KeyRecord, after: KeyRecord): boolean =>
  before.state !== after.state || describeChange(before, after) !== "";

/** The clock that decides about expiry. */
async function redisTimeMs(redis: RedisLink): Promise<number> {
  const [seconds, micros] = asList(await redis.command(["TIME"])).map(asNumber);
  return (seconds ?? 0) * 1_000 + Math.floor((micros ?? 0) / 1_000);
}

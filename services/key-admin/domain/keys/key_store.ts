import {
  hashKeyValue,
  isKeyId,
  keyHint,
  mintKey,
  mintKeyId,
  mintStoreName,
} from "@gateway/shared/keys/key";
import {
  auditKey,
  hashKey,
  KEY_FIELDS,
  type KeyRecord,
  keysKey,
  type KeyState,
  recordKey,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { RedisLink } from "@gateway/shared/redis/link";
import { defineScript } from "@gateway/shared/redis/script";
import { z } from "zod";
import {
  type Actor,
  AUDIT_ENTRIES_MAX,
  type AuditAction,
  encodeAudit,
} from "../audit/audit_log.ts";
import { confirmDurable } from "../store/durability.ts";
import { onceKey } from "../store/names.ts";
import type { StoreDeps } from "../store/redis.ts";
import { asList, asNumber, readHash } from "../store/reply.ts";
import { type KeyPage, type PageQuery, readPage } from "./key_page.ts";
import {
  decodeKey,
  describeChange,
  encodeKey,
  isExpired,
} from "./key_record.ts";
import type { KeySettings } from "./settings.ts";

/** How long the old key works after a rotation. */
export const ROTATION_GRACES_MS: Readonly<Record<string, number>> = {
  now: 0,
  "1h": 3_600_000,
  "24h": 86_400_000,
  "7d": 7 * 86_400_000,
};

/** A form sent twice within this time creates one key. */
const ONCE_SECONDS = 24 * 3600;

/** The input for a new key. */
export interface CreateKeyInput {
  ownerId: string;
  settings: KeySettings;
  actor: Actor;
  /** Digest of the form's nonce. Each nonce creates at most one key. */
  once?: string;
}

/** The key to change, the version the caller saw, and the actor. */
export interface Target {
  ownerId: string;
  keyId: string;
  /** Null: any version. Concurrent changes of other fields are kept. */
  version: number | null;
  actor: Actor;
}

/** Why nothing was changed, as users read it. */
const REFUSALS = {
  not_found:
    "This key does not exist. If it was deleted, the audit log says when and by whom",
  changed: "The key was changed in the meantime. Check it and try again",
  too_many: "The owner has the maximum number of keys",
  already_made:
    "This key was already created: the form was sent twice. The first answer had the full value. If you did not store it, delete the key and create another one",
  not_rotatable: "Only an enabled key that has not expired can be rotated",
} as const;
type Refusal = keyof typeof REFUSALS;

/** A change was refused, and nothing was changed. */
export class KeyRefused extends Error {
  override name = "KeyRefused";

  constructor(readonly reason: Refusal) {
    super(REFUSALS[reason]);
  }
}

const commitResult = z.enum([
  "done",
  ...["already_made", "not_found", "changed", "too_many"] as const,
]);

/** `value` is the full key value. It exists nowhere else. */
export interface CreatedKey {
  key: KeyRecord;
  value: string;
}

/** One step of a commit; a rotation has two. */
interface KeyChange {
  how: "create" | "update" | "delete";
  action: AuditAction;
  /** The key as the audit log shows it. */
  key: KeyRecord;
  detail?: string;
  /** The fields to write; absent for a deletion. */
  fields?: string[];
  /** The version that the stored key must have; null: any. */
  version: number | null;
}

/** The owner of the keys, and who changes them. */
interface Origin {
  ownerId: string;
  actor: Actor;
  /** A second commit with the same digest changes nothing. */
  once?: string | undefined;
}

/**
 * One lifecycle change, all or nothing: records, list and audit entries of one
 * owner, which share a slot.
 *
 * KEYS: 1 `keys:{owner}`, 2 `audit:{owner}`, 3 the `once` key, then one record
 * per change.
 * ARGV: 1 the plan as JSON.
 */
const COMMIT_SCRIPT = defineScript(
  "key-admin/commit",
  `
local plan = cjson.decode(ARGV[1])
if plan.once and redis.call('EXISTS', KEYS[3]) == 1 then return 'already_made' end
for i, change in ipairs(plan.changes) do
  if change.how == 'create' then
    if redis.call('ZCARD', KEYS[1]) >= plan.keysMax then return 'too_many' end
  else
    local version = tonumber(redis.call('HGET', KEYS[3 + i], '${KEY_FIELDS.version}'))
    if not version then return 'not_found' end
    if change.version > 0 and change.version ~= version then return 'changed' end
    change.next = version + 1
  end
end
for i, change in ipairs(plan.changes) do
  if change.how == 'delete' then
    redis.call('DEL', KEYS[3 + i])
    redis.call('ZREM', KEYS[1], change.id)
  else
    redis.call('HSET', KEYS[3 + i], unpack(change.fields))
    if change.how == 'create' then
      redis.call('ZADD', KEYS[1], change.createdAtMs, change.id)
    else
      redis.call('HSET', KEYS[3 + i], '${KEY_FIELDS.version}', change.next)
    end
  end
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', plan.auditMax, '*', unpack(change.audit))
end
if plan.once then redis.call('SET', KEYS[3], plan.changes[1].id, 'EX', plan.once) end
return 'done'
`,
);

/**
 * The lifecycle of API keys. Each change is one atomic script over the owner's
 * slot and is acknowledged only when it is on disk, if the server can confirm
 * that (`store/durability.ts`).
 *
 * The lookup `hash:<sha256>` is in another slot, so it cannot be part of that
 * script. The writes are ordered so that a crash between them leaves nothing
 * usable and loses nothing:
 * - Creating a key writes the lookup first. A crash then leaves a lookup of a
 *   record that does not exist: admission answers 401, and the
 *   value was never shown.
 * - Deleting a key deletes the record first. From then on admission finds no
 *   record, whatever the lookup (or an edge's memory of it) says. Key ids are
 *   never reused, so a lookup that is left behind is harmless.
 *
 * A refused change throws {@link KeyRefused}; any other returns the changed key,
 * or the deleted key as it was.
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

  /** One page of an owner's keys. */
  list(ownerId: string, query: PageQuery): Promise<KeyPage> {
    return readPage(this.#deps.redis, ownerId, query);
  }

  /** Creates a key. */
  async create(
    { settings, ...origin }: CreateKeyInput,
  ): Promise<CreatedKey> {
    const nowMs = await redisTimeMs(this.#deps.redis);
    return await this.#make(origin, settings, nowMs);
  }

  /** Creates a key with the same settings; the old one expires after `graceMs`. Only an enabled key that has not expired can be rotated. */
  async rotate(
    { ownerId, keyId, version, actor }: Target,
    graceMs: number,
    once?: string,
  ): Promise<CreatedKey> {
    const { redis } = this.#deps;
    // When a form is sent twice, the first request has already changed the version that the second one names.
    if (once && await redis.command(["EXISTS", onceKey(ownerId, once)]) === 1) {
      throw new KeyRefused("already_made");
    }
    const nowMs = await redisTimeMs(redis);
    const old = await this.get(ownerId, keyId);
    if (old === null) throw new KeyRefused("not_found");
    if (version !== null && version !== old.version) {
      throw new KeyRefused("changed");
    }
    if (old.state !== "enabled" || isExpired(old, nowMs)) {
      throw new KeyRefused("not_rotatable");
    }
    const endMs = nowMs + graceMs;
    const expiresAtMs = Math.min(old.expiresAtMs ?? endMs, endMs);
    const retired = updateOf("key.rotated", old, { expiresAtMs }, old.version);
    return await this.#make({ ownerId, actor, once }, old, nowMs, retired);
  }

  /** Replaces the settings that are given. */
  edit(
    target: Target,
    settings: Partial<KeySettings>,
  ): Promise<KeyRecord> {
    return this.#update(target, "key.edited", settings);
  }

  /** Refuses the key from the next request on. */
  disable(target: Target): Promise<KeyRecord> {
    return this.#update(target, "key.disabled", { state: "disabled" });
  }

  /** Accepts the key from the next request on. */
  enable(target: Target): Promise<KeyRecord> {
    return this.#update(target, "key.enabled", { state: "enabled" });
  }

  /** Deletes a key: its record first. */
  async delete({ version, ...target }: Target): Promise<KeyRecord> {
    const key = await this.get(target.ownerId, target.keyId);
    if (key === null) throw new KeyRefused("not_found");
    const change = { how: "delete", action: "key.deleted" } as const;
    await this.#commit(target, [{ ...change, key, version }]);
    // Only cleans up: without the record the lookup is useless.
    await this.#deps.writer.command(["DEL", hashKey(key.hash)]);
    return key;
  }

  async #update(
    { version, ...target }: Target,
    action: AuditAction,
    members: Partial<KeySettings & { state: KeyState }>,
  ): Promise<KeyRecord> {
    const before = await this.get(target.ownerId, target.keyId);
    if (before === null) throw new KeyRefused("not_found");
    const change = updateOf(action, before, members, version);
    await this.#commit(target, [change]);
    return { ...change.key, version: before.version + 1 };
  }

  /** Creates a key, and changes the one that it replaces if any. */
  async #make(
    origin: Origin,
    settings: Pick<KeyRecord, keyof KeySettings>,
    nowMs: number,
    retired?: KeyChange,
  ): Promise<CreatedKey> {
    const { writer, randomBytes } = this.#deps;
    const value = mintKey(randomBytes);
    const { description, scopes, models, limits, expiresAtMs } = settings;
    const key: KeyRecord = {
      id: mintKeyId(randomBytes),
      ownerId: origin.ownerId,
      state: "enabled",
      ...{ description, scopes, models, limits, expiresAtMs },
      hint: keyHint(value),
      hash: hashKeyValue(value),
      createdAtMs: nowMs,
      version: 1,
    };
    const lookup = hashKey(key.hash);
    // The very first key names the store: edges trust lookups only in a named store.
    await writer.command(["SET", STORE_KEY, mintStoreName(randomBytes), "NX"]);
    await writer.command(["SET", lookup, `${key.id}:${key.ownerId}`]);
    const created: KeyChange = {
      ...{ how: "create", action: "key.created", key, version: null },
      fields: encodeKey(key),
      detail: retired === undefined ? "" : `replaces ${retired.key.id}`,
    };
    const changes = retired === undefined ? [created] : [created, retired];
    try {
      await this.#commit(origin, changes);
    } catch (error) {
      if (error instanceof KeyRefused) await writer.command(["DEL", lookup]);
      throw error;
    }
    return { key, value };
  }

  /** Applies all of the changes or none. Resolves when they are on disk. */
  async #commit(
    { ownerId, actor, once }: Origin,
    changes: readonly KeyChange[],
  ): Promise<void> {
    const plan = {
      changes: changes.map(({ how, action, key, detail, fields, version }) => ({
        ...{ how, fields, id: key.id, version: version ?? 0 },
        createdAtMs: String(key.createdAtMs),
        audit: encodeAudit({
          ...{ action, ...actor, keyId: key.id, detail: detail ?? "" },
          ...{ hint: key.hint, description: key.description },
        }),
      })),
      keysMax: KEY_LIMITS.keysPerOwnerMax,
      auditMax: AUDIT_ENTRIES_MAX,
      ...(once === undefined ? {} : { once: ONCE_SECONDS }),
    };
    const { writer } = this.#deps;
    const keys = [
      ...[keysKey(ownerId), auditKey(ownerId), onceKey(ownerId, once ?? "")],
      ...changes.map(({ key: { id } }) => recordKey({ ownerId, keyId: id })),
    ];
    const result = commitResult.parse(
      await writer.evalScript(COMMIT_SCRIPT, keys, [JSON.stringify(plan)]),
    );
    if (result !== "done") throw new KeyRefused(result);
    await confirmDurable(writer);
  }
}

function updateOf(
  action: AuditAction,
  before: KeyRecord,
  members: Partial<KeySettings & { state: KeyState }>,
  version: number | null,
): KeyChange {
  const key = { ...before, ...members };
  const detail = describeChange(before, key);
  const fields = encodeKey(members);
  return { how: "update", action, key, detail, fields, version };
}

/** The clock that expiry is checked by. */
async function redisTimeMs(redis: RedisLink): Promise<number> {
  const [seconds, micros] = asList(await redis.command(["TIME"])).map(asNumber);
  return (seconds ?? 0) * 1_000 + Math.floor((micros ?? 0) / 1_000);
}

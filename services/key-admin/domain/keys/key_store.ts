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
  failedKey,
  hashKey,
  KEY_FIELDS,
  type KeyName,
  type KeyRecord,
  keysKey,
  recordKey,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import { keysOf } from "@gateway/shared/process/env";
import { defineScript } from "@gateway/shared/redis/link";
import { z } from "zod";
import {
  type Actor,
  AUDIT_ENTRIES_MAX,
  type AuditAction,
  encodeAudit,
} from "../audit/audit_log.ts";
import { createPersist } from "../store/durability.ts";
import { asTexts, readHash, type StoreDeps } from "../store/redis.ts";
import { type PageQuery, readPage } from "./key_page.ts";
import {
  decodeKey,
  describeChange,
  encodeKey,
  minuteText,
} from "./key_record.ts";
import type { KeySettings } from "./settings.ts";

/** When the old key of a rotation stops working: how long after it, and in words. */
export const GRACES = {
  now: { ms: 0, text: "immediately" },
  "1h": { ms: 3_600_000, text: "in 1 hour" },
  "24h": { ms: 86_400_000, text: "in 24 hours" },
  "7d": { ms: 7 * 86_400_000, text: "in 7 days" },
} as const;

export const graceSchema = z.enum(
  keysOf(GRACES),
  `One of ${keysOf(GRACES).join(", ")}`,
);

/** A form sent twice within this time creates one key. */
const ONCE_SECONDS = 24 * 3600;

/** The owner of the keys, and who changes them. */
interface Origin {
  ownerId: string;
  actor: Actor;
  /** Digest of the form's nonce: a second change with the same one is refused. */
  once?: string | undefined;
}

interface Creation extends Origin {
  settings: KeySettings;
  /**
   * A key with a value of its own that is in no list, counts towards no number of keys,
   * and is deleted by Redis after this time.
   */
  unlisted?: { lifeMs: number; mintValue: (keyId: string) => string };
}

export interface Target extends Origin {
  keyId: string;
  /** Null: any version. Concurrent changes of other fields are kept. */
  version: number | null;
}

/** Why nothing was changed, as users read it. */
const REFUSALS = {
  not_found:
    "This key does not exist. If it was deleted, the audit log says when and by whom",
  changed:
    "The key was changed in the meantime. Look at its new settings and try again",
  too_many:
    "The owner has the maximum number of keys. Delete one that is no longer used",
  already_made:
    "This key was already created: the form was sent twice. The first answer had the full value. If you did not store it, delete the key and create another one",
  not_rotatable:
    "Only an enabled key that has not expired can be rotated. Enable it or move its expiry first, or create a new key",
};
type Refusal = keyof typeof REFUSALS;
const refusal = z.enum(keysOf(REFUSALS));

export class KeyRefused extends Error {
  override name = "KeyRefused";

  constructor(readonly reason: Refusal) {
    super(REFUSALS[reason]);
  }
}

/** `value` is the full key value. It exists nowhere else. */
export type CreatedKey = { key: KeyRecord; value: string };

/** One step of a change. A rotation has two: it retires one key and creates another. */
interface Step {
  action: AuditAction;
  keyId: string;
  /** The version that the stored key must have; 0: any. */
  version: number;
  /** Of an unlisted key: when Redis deletes its record. */
  untilMs?: number;
  /**
   * What is written to the record and to the audit log, as arguments of HSET and XADD.
   */
  fields: string[];
  audit: string[];
}

/**
 * One lifecycle change, all or nothing.
 *
 * KEYS: 1 `keys:{owner}`, 2 `audit:{owner}`, 3 the `once` key, then a record per step.
 * ARGV: 1 the plan as JSON, see `commit`.
 */
const COMMIT_SCRIPT = defineScript(
  "key-admin/commit",
  `
local plan = cjson.decode(ARGV[1])
if plan.isOnce and redis.call('EXISTS', KEYS[3]) == 1 then return 'already_made' end
for i, step in ipairs(plan.steps) do
  if step.action == 'key.created' then
    if not step.untilMs and redis.call('ZCARD', KEYS[1]) >= ${KEY_LIMITS.keysPerOwnerMax} then return 'too_many' end
  else
    local stored = redis.call('HMGET', KEYS[3 + i], '${KEY_FIELDS.version}', '${KEY_FIELDS.state}', '${KEY_FIELDS.expiresAtMs}')
    local version, expiry = tonumber(stored[1]), tonumber(stored[3])
    if not version then return 'not_found' end
    if step.version > 0 and step.version ~= version then return 'changed' end
    local isOver = expiry > 0 and expiry <= tonumber(plan.nowMs)
    if step.action == 'key.rotated' and (isOver or stored[2] ~= 'enabled') then return 'not_rotatable' end
    step.next = version + 1
  end
end
for i, step in ipairs(plan.steps) do
  if step.action == 'key.deleted' then
    redis.call('DEL', KEYS[3 + i])
    redis.call('ZREM', KEYS[1], step.keyId)
  else
    redis.call('HSET', KEYS[3 + i], unpack(step.fields))
    if step.action == 'key.enabled' then redis.call('DEL', KEYS[3 + i] .. ':stop') end
    if step.untilMs then
      redis.call('PEXPIREAT', KEYS[3 + i], step.untilMs)
    elseif step.action == 'key.created' then
      redis.call('ZADD', KEYS[1], plan.nowMs, step.keyId)
    else
      redis.call('HSET', KEYS[3 + i], '${KEY_FIELDS.version}', step.next)
    end
  end
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ${AUDIT_ENTRIES_MAX}, '*', unpack(step.audit))
end
if plan.isOnce then redis.call('SET', KEYS[3], '1', 'EX', ${ONCE_SECONDS}) end
return 'done'
`,
);

/**
 * The lifecycle of API keys. Each change is one atomic script over the owner's slot and
 * is acknowledged only when it is on disk, if the server can confirm that. A refused
 * change throws {@link KeyRefused}.
 *
 * The lookup `hash:<sha256>` is in another slot, so it is written before the record and
 * deleted after it: a crash between the two leaves at most a lookup without a record,
 * which admission answers with 401. Key ids are never reused.
 */
export type KeyStore = ReturnType<typeof createKeyStore>;

export function createKeyStore(
  { redis, writer, randomBytes }: Omit<StoreDeps, "now">,
) {
  const persist = createPersist(writer);

  /** Takes all of the steps or none. Resolves when they are on disk. */
  async function commit(
    { ownerId, once }: Origin,
    steps: readonly Step[],
    nowMs = 0,
  ): Promise<void> {
    const isOnce = once !== undefined;
    const plan = { steps, nowMs: String(nowMs), isOnce };
    const keys = [
      keysKey(ownerId),
      auditKey(ownerId),
      `once:{${ownerId}}:${once ?? ""}`,
      ...steps.map(({ keyId }) => recordKey({ ownerId, keyId })),
    ];
    const args = [JSON.stringify(plan)];
    const result = await writer.evalScript(COMMIT_SCRIPT, { keys, args });
    if (result !== "done") throw new KeyRefused(refusal.parse(result));
    await persist();
  }

  /** Creates a key, and retires the one that it replaces, if any. */
  async function make(
    { settings, unlisted, ...origin }: Creation,
    nowMs: number,
    retired?: { old: KeyRecord; version: number; expiresAtMs: number },
  ): Promise<CreatedKey> {
    const id = mintKeyId(randomBytes);
    const value = unlisted?.mintValue(id) ?? mintKey(randomBytes);
    const untilMs = unlisted && nowMs + unlisted.lifeMs;
    const key: KeyRecord = {
      ...settings,
      id,
      ownerId: origin.ownerId,
      state: "enabled",
      version: 1,
      hint: keyHint(value),
      hash: hashKeyValue(value),
      createdAtMs: nowMs,
      expiresAtMs: untilMs ?? settings.expiresAtMs,
      replaces: retired ? [retired.old.id, retired.old.hint] : null,
      replacedBy: null,
    };
    const lookup = hashKey(key.hash);
    const end = untilMs ? ["PXAT", String(untilMs)] : [];
    const { actor } = origin;
    let detail = retired ? `replaces ${retired.old.id}` : "";
    if (untilMs) detail = `until ${minuteText(untilMs)}`;
    const created = stepOf("key.created", { actor }, key, key, detail);
    const steps = [{ ...created, ...untilMs && { untilMs } }];
    if (retired !== undefined) {
      const { old, version, expiresAtMs } = retired;
      const replacedBy: KeyName = [key.id, key.hint];
      const changed = { expiresAtMs, replacedBy };
      steps.push(stepOf("key.rotated", { actor, version }, old, changed));
    }
    // The very first key names the store: edges trust lookups only in a named store.
    const storeName = mintStoreName(randomBytes);
    await writer.command(["SET", STORE_KEY, storeName, "NX"]);
    await writer.command(["SET", lookup, `${id}:${key.ownerId}`, ...end]);
    try {
      await commit(origin, steps, nowMs);
    } catch (error) {
      if (error instanceof KeyRefused) await writer.command(["DEL", lookup]);
      throw error;
    }
    return { key, value };
  }

  async function update(
    target: Target,
    action: AuditAction,
    changed: Partial<KeyRecord>,
  ): Promise<KeyRecord> {
    const before = await store.find(target.ownerId, target.keyId);
    await commit(target, [stepOf(action, target, before, changed)]);
    return { ...before, ...changed, version: before.version + 1 };
  }

  /** The time by Redis' clock, which decides when keys expire. */
  async function redisTimeMs(): Promise<number> {
    const [seconds, micros] = asTexts(await redis.command(["TIME"]));
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  }

  const store = {
    async get(ownerId: string, keyId: string) {
      if (!isKeyId(keyId)) return null;
      const ids = { ownerId, keyId };
      const fields = await readHash(redis, recordKey(ids));
      return fields === null ? null : decodeKey(ids, fields);
    },

    async find(ownerId: string, keyId: string): Promise<KeyRecord> {
      const key = await store.get(ownerId, keyId);
      if (key === null) throw new KeyRefused("not_found");
      return key;
    },

    /** Those of the ids that are keys of the owner. */
    async present(ownerId: string, ids: Iterable<string>) {
      const reads = Array.from(new Set(ids), (id) => store.get(ownerId, id));
      const found = await Promise.all(reads);
      return new Set(found.flatMap((key) => key?.id ?? []));
    },

    list: (ownerId: string, query: PageQuery) =>
      readPage(redis, ownerId, query),

    create: async (creation: Creation) => make(creation, await redisTimeMs()),

    /**
     * Creates a key with the same settings; the old one expires after `graceMs`. Only
     * an enabled key that has not expired can be rotated.
     */
    async rotate(target: Target, graceMs: number): Promise<CreatedKey> {
      const nowMs = await redisTimeMs();
      const old = await store.find(target.ownerId, target.keyId);
      const endMs = nowMs + graceMs;
      const expiresAtMs = Math.min(old.expiresAtMs ?? endMs, endMs);
      const version = target.version ?? old.version;
      const retired = { old, version, expiresAtMs };
      return await make({ ...target, settings: old }, nowMs, retired);
    },

    edit: (target: Target, settings: Partial<KeySettings>) =>
      update(target, "key.edited", settings),

    disable: (target: Target) =>
      update(target, "key.disabled", { state: "disabled" }),

    enable: (target: Target) =>
      update(target, "key.enabled", { state: "enabled" }),

    async delete(target: Target): Promise<KeyRecord> {
      const key = await store.find(target.ownerId, target.keyId);
      await commit(target, [stepOf("key.deleted", target, key, {})]);
      // Only cleans up: without the record the lookup is useless.
      await writer.command(["DEL", hashKey(key.hash)]);
      await writer.command(["DEL", failedKey(target)]);
      return key;
    },
  };
  return store;
}

/** The step that changes these members of a key, with its entry in the audit log. */
function stepOf(
  action: AuditAction,
  { actor, version }: { actor: Actor; version?: number | null },
  before: KeyRecord,
  changed: Partial<KeyRecord>,
  detail: string = describeChange(before, { ...before, ...changed }),
): Step {
  const { id: keyId, hint, description } = { ...before, ...changed };
  const about = { keyId, hint, description, detail };
  return {
    action,
    keyId,
    version: version ?? 0,
    fields: encodeKey(changed),
    audit: encodeAudit({ action, ...actor, ...about }),
  };
}

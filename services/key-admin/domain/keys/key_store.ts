/** The keys in Redis, and everything that can happen to one. */
import { isDeepStrictEqual } from "node:util";
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
  deletedKey,
  hashKey,
  KEY_FIELDS,
  type KeyName,
  type KeyRecord,
  keysKey,
  recordKey,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { DELETED_KEY_SECONDS, KEY_LIMITS } from "@gateway/shared/keys/limits";
import type { RandomBytes } from "@gateway/shared/process/ids";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import {
  type Actor,
  AUDIT_ENTRIES_MAX,
  type AuditAction,
  encodeAudit,
} from "../audit/audit_log.ts";
import { createPersist } from "../store/durability.ts";
import {
  asTexts,
  readHash,
  type RowPage,
  type StoreDeps,
} from "../store/redis.ts";
import { type KeyRow, type PageQuery, readPage } from "./key_page.ts";
import {
  decodeKey,
  describeChange,
  encodeKey,
  minuteText,
} from "./key_record.ts";
import { type CarriedBudgets, carriedBudgets } from "./carried_spend.ts";
import { KeyRefused, refusal } from "./key_refused.ts";
import commitLua from "./lua/commit.lua" with { type: "text" };
import type { KeySettings } from "./settings.ts";

/** A form sent twice within this time creates one key. */
const ONCE_SECONDS = 24 * 3600;

/** The owner of the keys that are changed, and the actor. */
interface Origin {
  ownerId: string;
  actor: Actor;
  /** Digest of the form's nonce: a second change with the same one is refused. */
  once?: string | undefined;
}

interface Creation extends Origin {
  settings: KeySettings;
  /** The id of the owner who creates it; by default nobody is recorded. */
  createdBy?: string;
  /**
   * A key with a value of its own that is in no list, counts towards no number of keys,
   * and is deleted by Redis after this time.
   */
  unlisted?: { lifeMs: number; mintValue: (keyId: string) => string };
}

/** The key that a change is about. */
export interface Target extends Origin {
  keyId: string;
  /** Null for any version: concurrent changes of other fields are kept. */
  version: number | null;
  /** Why an operator changes somebody else's key; for the audit log. */
  reason?: string | undefined;
}

/** What a key is to be like; what is not stated stays as it is. */
export type KeyUpdate = Partial<KeySettings & Pick<KeyRecord, "state">>;

/** A new key, whose value is shown once. */
export interface CreatedKey {
  key: KeyRecord;
  /** The full key value, which exists nowhere else. */
  value: string;
}

/** The key that a new one replaces. */
interface Retired {
  old: KeyRecord;
  /** The version that the stored key must have. */
  version: number;
  /** When the old key stops working. */
  expiresAtMs: number;
}

/**
 * One step of a change, as `lua/commit.lua` takes it. A rotation has two: it retires
 * one key and creates another.
 */
interface Step {
  action: AuditAction;
  keyId: string;
  /** The version that the stored key must have; 0: any. */
  version: number;
  /** When Redis deletes the record of an unlisted key. */
  untilMs?: number;
  /**
   * What is written to the record and to the audit log, as arguments of HSET and XADD.
   */
  fields: string[];
  audit: string[];
}

const COMMIT_SCRIPT = defineScript("key-admin/commit", commitLua, {
  KEYS_PER_OWNER_MAX: KEY_LIMITS.keysPerOwnerMax,
  AUDIT_ENTRIES_MAX,
  ONCE_S: ONCE_SECONDS,
  VERSION_FIELD: KEY_FIELDS.version,
  STATE_FIELD: KEY_FIELDS.state,
  EXPIRES_AT_FIELD: KEY_FIELDS.expiresAtMs,
});

/**
 * The lifecycle of API keys. Each change is one atomic script over the owner's slot and
 * is acknowledged only when it is on disk, if the server can confirm that. A refused
 * change throws {@link KeyRefused}.
 *
 * The lookup `hash:<sha256>` is in another slot, so it is written before the record and
 * deleted after it: a crash between the two leaves at most a lookup without a record,
 * which admission answers with 401. Key ids are never reused.
 */
export class KeyStore {
  readonly #redis: RedisLink;
  readonly #writer: RedisLink;
  readonly #randomBytes: RandomBytes;
  readonly #persist: () => Promise<void>;

  constructor({ redis, writer, randomBytes }: Omit<StoreDeps, "now">) {
    this.#redis = redis;
    this.#writer = writer;
    this.#randomBytes = randomBytes;
    this.#persist = createPersist(writer);
  }

  /** Returns the key of this id if it is the owner's; null otherwise. */
  async get(ownerId: string, keyId: string): Promise<KeyRecord | null> {
    if (!isKeyId(keyId)) return null;
    const ids = { ownerId, keyId };
    const fields = await readHash(this.#redis, recordKey(ids));
    return fields === null ? null : decodeKey(ids, fields);
  }

  /**
   * Returns the key of this id as `get()` does. Throws {@link KeyRefused} if there is
   * none.
   */
  async find(ownerId: string, keyId: string): Promise<KeyRecord> {
    const key = await this.get(ownerId, keyId);
    if (key === null) throw new KeyRefused("not_found");
    return key;
  }

  /** Which of these ids are keys of the owner. */
  async present(ownerId: string, ids: Iterable<string>): Promise<Set<string>> {
    const reads = Array.from(new Set(ids), (id) => this.get(ownerId, id));
    const found = await Promise.all(reads);
    return new Set(found.flatMap((key) => key?.id ?? []));
  }

  /** One page of the owner's keys, newest first. */
  list(ownerId: string, query: PageQuery): Promise<RowPage<KeyRow>> {
    return readPage(this.#redis, ownerId, query);
  }

  /** Creates a key. */
  async create(creation: Creation): Promise<CreatedKey> {
    return await this.#make(creation, await this.#redisTimeMs());
  }

  /**
   * Creates a key with the same settings; the old one expires after `graceMs`. Only an
   * enabled key that has not expired can be rotated.
   */
  async rotate(target: Target, graceMs: number): Promise<CreatedKey> {
    const nowMs = await this.#redisTimeMs();
    const old = await this.find(target.ownerId, target.keyId);
    const endMs = nowMs + graceMs;
    return await this.#make({ ...target, settings: old }, nowMs, {
      old,
      version: target.version ?? old.version,
      expiresAtMs: Math.min(old.expiresAtMs ?? endMs, endMs),
    });
  }

  /** Replaces these settings, and returns the key with them. */
  edit(target: Target, settings: Partial<KeySettings>): Promise<KeyRecord> {
    return this.#update(target, "key.edited", settings);
  }

  /**
   * Makes settings and state of a key what is stated, all or nothing; what is so
   * already is no change.
   */
  async change(target: Target, wanted: KeyUpdate): Promise<KeyRecord> {
    const { ownerId, keyId, actor, version, reason } = target;
    const before = await this.find(ownerId, keyId);
    const { state = before.state, ...changed } = wanted;
    const edited = { ...before, ...changed };
    const about = { actor, version, reason };
    const steps: Step[] = [];
    if (!isDeepStrictEqual(edited, before)) {
      steps.push(stepOf("key.edited", { ...about, before, changed }));
    }
    if (state !== before.state) {
      const transition = { ...about, before: edited, changed: { state } };
      steps.push(stepOf(`key.${state}`, transition));
    }
    if (steps.length === 0) {
      if (version === null || version === before.version) return before;
      throw new KeyRefused("changed");
    }
    await this.#commit(target, steps);
    return { ...edited, state, version: before.version + 1 };
  }

  /** Refuses every request with the key from the next one on. */
  disable(target: Target): Promise<KeyRecord> {
    return this.#update(target, "key.disabled", { state: "disabled" });
  }

  /** Accepts requests with the key again. */
  enable(target: Target): Promise<KeyRecord> {
    return this.#update(target, "key.enabled", { state: "enabled" });
  }

  /** Deletes a key for good, and returns what it was. */
  async delete(target: Target): Promise<KeyRecord> {
    const key = await this.find(target.ownerId, target.keyId);
    const { actor, version, reason } = target;
    const transition = { actor, version, reason, before: key, changed: {} };
    await this.#commit(target, [stepOf("key.deleted", transition)]);
    // The request log needs it: programs may go on using the key for a while.
    const whose = `${key.id}:${key.ownerId}`;
    const kept = ["EX", String(DELETED_KEY_SECONDS)];
    await this.#writer.command(["SET", deletedKey(key.hash), whose, ...kept]);
    // Only cleans up: without the record the lookup is useless.
    await this.#writer.command(["DEL", hashKey(key.hash)]);
    return key;
  }

  async #update(
    target: Target,
    action: AuditAction,
    changed: Partial<KeyRecord>,
  ): Promise<KeyRecord> {
    const { ownerId, keyId, actor, version, reason } = target;
    const before = await this.find(ownerId, keyId);
    const step = stepOf(action, { actor, version, reason, before, changed });
    await this.#commit(target, [step]);
    return { ...before, ...changed, version: before.version + 1 };
  }

  /** Creates a key, and retires the one that it replaces, if any. */
  async #make(
    { settings, unlisted, createdBy, ...origin }: Creation,
    nowMs: number,
    retired?: Retired,
  ): Promise<CreatedKey> {
    const id = mintKeyId(this.#randomBytes);
    const value = unlisted?.mintValue(id) ?? mintKey(this.#randomBytes);
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
      createdBy: retired?.old.createdBy ?? createdBy ?? null,
      replaces: retired ? [retired.old.id, retired.old.hint] : null,
      replacedBy: null,
    };
    const steps = creationSteps(key, { actor: origin.actor, untilMs, retired });
    await this.#writeLookup(key, untilMs);
    const carried = retired ? carriedBudgets(retired.old, key, nowMs) : [];
    try {
      await this.#commit(origin, steps, { nowMs, carried });
    } catch (error) {
      if (error instanceof KeyRefused) {
        await this.#writer.command(["DEL", hashKey(key.hash)]);
      }
      throw error;
    }
    return { key, value };
  }

  async #writeLookup(key: KeyRecord, untilMs: number | undefined) {
    // The very first key names the store: edges trust lookups only in a named store.
    const storeName = mintStoreName(this.#randomBytes);
    await this.#writer.command(["SET", STORE_KEY, storeName, "NX"]);
    const lookup = ["SET", hashKey(key.hash), `${key.id}:${key.ownerId}`];
    if (untilMs) lookup.push("PXAT", String(untilMs));
    await this.#writer.command(lookup);
  }

  /** Takes all of the steps or none. Resolves when they are on disk. */
  async #commit(
    { ownerId, once }: Origin,
    steps: readonly Step[],
    { nowMs = 0, carried = [] }: { nowMs?: number; carried?: CarriedBudgets } =
      {},
  ): Promise<void> {
    const isOnce = once !== undefined;
    const plan = { steps, nowMs: String(nowMs), isOnce, carried };
    const keys = [
      keysKey(ownerId),
      auditKey(ownerId),
      `once:{${ownerId}}:${once ?? ""}`,
      ...steps.map(({ keyId }) => recordKey({ ownerId, keyId })),
    ];
    const args = [JSON.stringify(plan)];
    const result = await this.#writer.evalScript(COMMIT_SCRIPT, { keys, args });
    if (result !== "done") throw new KeyRefused(refusal.parse(result));
    await this.#persist();
  }

  /** The time by Redis' clock, which decides when keys expire. */
  async #redisTimeMs(): Promise<number> {
    const [seconds, micros] = asTexts(await this.#redis.command(["TIME"]));
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  }
}

/** The steps that create a key and retire the one that it replaces. */
function creationSteps(
  key: KeyRecord,
  { actor, untilMs, retired }: {
    actor: Actor;
    untilMs: number | undefined;
    retired: Retired | undefined;
  },
): Step[] {
  let detail = retired ? `replaces ${retired.old.id}` : "";
  if (untilMs) detail = `until ${minuteText(untilMs)}`;
  const transition = { actor, before: key, changed: key, detail };
  const created = stepOf("key.created", transition);
  if (untilMs) created.untilMs = untilMs;
  if (retired === undefined) return [created];
  const { old, version, expiresAtMs } = retired;
  const replacedBy: KeyName = [key.id, key.hint];
  const changed = { expiresAtMs, replacedBy };
  return [
    created,
    stepOf("key.rotated", { actor, version, before: old, changed }),
  ];
}

/** The effect of a step on a key. */
interface Transition {
  actor: Actor;
  /** The version that the stored key must have; null or none: any. */
  version?: number | null;
  before: KeyRecord;
  /** The members that change. */
  changed: Partial<KeyRecord>;
  /** The change as the audit log words it; by default what differs. */
  detail?: string;
  /** The reason that an operator gave. */
  reason?: string | undefined;
}

/** The step that changes these members of a key, with its entry in the audit log. */
function stepOf(
  action: AuditAction,
  { actor, version, before, changed, detail, reason = "" }: Transition,
): Step {
  const after = { ...before, ...changed };
  const { id: keyId, hint, description } = after;
  const about = {
    keyId,
    hint,
    description,
    detail: [detail ?? describeChange(before, after), reason]
      .filter((text) => text !== "").join("; "),
  };
  return {
    action,
    keyId,
    version: version ?? 0,
    fields: encodeKey(changed),
    audit: encodeAudit({ action, ...actor, ...about }),
  };
}

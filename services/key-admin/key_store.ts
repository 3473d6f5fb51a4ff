import {
  hashKeyValue,
  isKeyId,
  keyHint,
  mintKey,
  mintKeyId,
  mintStoreName,
} from "@gateway/shared/keys/key";
import type { RandomBytes } from "@gateway/shared/ids";
import {
  hashKey,
  type KeyRecord,
  recordKey,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import type { Actor, AuditAction, AuditEntry } from "./keys/audit.ts";
import { type Commit, commit, type CommitResult } from "./keys/commit.ts";
import {
  changed,
  describeChange,
  isExpired,
  retired,
} from "./keys/key_changes.ts";
import { decodeKey } from "./keys/key_codec.ts";
import { LOOKUP_SCRIPT } from "./keys/lookup.lua.ts";
import { type KeyPage, type PageQuery, readPage } from "./keys/key_page.ts";
import type { KeySettings } from "./keys/settings.ts";
import { confirmDurable } from "./store/durability.ts";
import { barrierKey, onceKey } from "./store/names.ts";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asFields, asList, asNumber } from "./store/reply.ts";

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
export interface KeyStore {
  create(order: CreateOrder): Promise<Made>;
  /** Null when the owner has no such key. */
  get(ownerId: string, keyId: string): Promise<KeyRecord | null>;
  /** One page of an owner's keys in one bounded call, see {@link PageQuery}. */
  list(ownerId: string, query: PageQuery): Promise<KeyPage>;
  edit(target: Target, settings: Partial<KeySettings>): Promise<Changed>;
  disable(target: Target): Promise<Changed>;
  enable(target: Target): Promise<Changed>;
  delete(target: Target): Promise<Changed>;
  /** Makes a key with the same settings; the old one ends after `graceMs`. Only an enabled key that is not over can be rotated. */
  rotate(target: Target, graceMs: number, once?: string): Promise<Made>;
}

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

/** Somebody else's changes are waited out this often when the caller named no version. */
const TRIES_MAX = 8;

/** The store on Redis, in the layout of `keys/record.ts`. */
export function createKeyStore(deps: KeyStoreDeps): KeyStore {
  return {
    create: (order) => create(deps, order),
    get: (ownerId, keyId) => get(deps.redis, ownerId, keyId),
    list: (ownerId, query) => readPage(deps.redis, ownerId, query),
    edit: (target, settings) =>
      change(deps, target, "key.edited", (key) => changed(key, settings)),
    disable: (target) =>
      change(
        deps,
        target,
        "key.disabled",
        (key) => changed(key, { state: "disabled" }),
      ),
    enable: (target) =>
      change(
        deps,
        target,
        "key.enabled",
        (key) => changed(key, { state: "enabled" }),
      ),
    delete: (target) => remove(deps, target),
    rotate: (target, graceMs, once) => rotate(deps, target, graceMs, once),
  };
}

async function create(
  deps: KeyStoreDeps,
  { ownerId, settings, actor, once }: CreateOrder,
): Promise<Made> {
  const nowMs = await redisTimeMs(deps.redis);
  const { key, value } = mint(deps.randomBytes, ownerId, settings, nowMs);
  await writeLookup(deps, key);
  const result = await commit(deps.writer, {
    ownerId,
    changes: [{ before: null, after: key }],
    audit: [entry("key.created", key, actor, "")],
    once: once ?? null,
  });
  if (!result.done) return await takeBackLookup(deps.writer, key, result);
  await confirmDurable(deps.writer);
  return { ok: true, key, value };
}

async function rotate(
  deps: KeyStoreDeps,
  target: Target,
  graceMs: number,
  once: string | undefined,
): Promise<Made> {
  const nowMs = await redisTimeMs(deps.redis);
  const { ownerId, actor } = target;
  // The first of two equal forms changed the version that the second one names.
  if (once !== undefined && await wasMade(deps.redis, ownerId, once)) {
    return { ok: false, reason: "already_made" };
  }
  return await retry(target, async (): Promise<Made> => {
    const old = await readForChange(deps.redis, target);
    if (!old.ok) return old;
    if (old.key.state !== "enabled" || isExpired(old.key, nowMs)) {
      return { ok: false, reason: "not_rotatable" };
    }
    const { key, value } = mint(deps.randomBytes, ownerId, old.key, nowMs);
    const before = old.key;
    const after = retired(before, nowMs, graceMs);
    await writeLookup(deps, key);
    const result = await commit(deps.writer, {
      ownerId,
      changes: [{ before: null, after: key }, { before, after }],
      audit: [
        entry("key.created", key, actor, `replaces ${before.id}`),
        entry("key.rotated", before, actor, describeChange(before, after)),
      ],
      once: once ?? null,
    });
    if (!result.done) return await takeBackLookup(deps.writer, key, result);
    await confirmDurable(deps.writer);
    return { ok: true, key, value };
  });
}

async function change(
  deps: KeyStoreDeps,
  target: Target,
  action: AuditAction,
  step: (key: KeyRecord) => KeyRecord,
): Promise<Changed> {
  return await retry(target, async (): Promise<Changed> => {
    const found = await readForChange(deps.redis, target);
    if (!found.ok) return found;
    const before = found.key;
    const after = step(before);
    const detail = describeChange(before, after);
    if (detail === "" && before.state === after.state) {
      await confirmEarlier(deps.writer);
      return found;
    }
    return await commitChange(deps, {
      ownerId: target.ownerId,
      changes: [{ before, after }],
      audit: [entry(action, after, target.actor, detail)],
      once: null,
    }, after);
  });
}

async function remove(deps: KeyStoreDeps, target: Target): Promise<Changed> {
  const removed = await retry(target, async (): Promise<Changed> => {
    const found = await readForChange(deps.redis, target);
    if (!found.ok) return found;
    return await commitChange(deps, {
      ownerId: target.ownerId,
      changes: [{ before: found.key, after: null }],
      audit: [entry("key.deleted", found.key, target.actor, "")],
      once: null,
    }, found.key);
  });
  // Only tidies up: without its record the look-up leads nowhere.
  if (removed.ok) await deps.writer.command(["DEL", hashKey(removed.key.hash)]);
  return removed;
}

async function commitChange(
  deps: KeyStoreDeps,
  plan: Commit,
  key: KeyRecord,
): Promise<Changed> {
  const result = await commit(deps.writer, plan);
  if (!result.done) return { ok: false, reason: result.reason };
  await confirmDurable(deps.writer);
  return { ok: true, key };
}

/**
 * What is asked for is so already, so there is nothing to change. Somebody else's
 * change may have made it so a moment ago and not be on disk yet: a write after
 * it, once on disk, says that the earlier one is there too.
 */
async function confirmEarlier(writer: RedisLink): Promise<void> {
  await writer.command(["SET", barrierKey, "1", "EX", "60"]);
  await confirmDurable(writer);
}

/** Repeats a change that met another one, when the caller did not insist on a version. */
async function retry<T extends Changed | Made>(
  { version }: Target,
  attempt: () => Promise<T>,
): Promise<T> {
  for (let tries = 1;; tries++) {
    const result = await attempt();
    const mayRepeat = version === null && tries < TRIES_MAX;
    if (result.ok || result.reason !== "changed" || !mayRepeat) return result;
  }
}

async function readForChange(
  redis: RedisLink,
  { ownerId, keyId, version }: Target,
): Promise<{ ok: true; key: KeyRecord } | { ok: false; reason: Refusal }> {
  const key = await get(redis, ownerId, keyId);
  if (key === null) return { ok: false, reason: "not_found" };
  if (version !== null && version !== key.version) {
    return { ok: false, reason: "changed" };
  }
  return { ok: true, key };
}

async function get(
  redis: RedisLink,
  ownerId: string,
  keyId: string,
): Promise<KeyRecord | null> {
  if (!isKeyId(keyId)) return null;
  const fields = asFields(
    await redis.command(["HGETALL", recordKey({ ownerId, keyId })]),
  );
  return fields.size === 0 ? null : decodeKey({ ownerId, keyId }, fields);
}

function mint(
  randomBytes: RandomBytes,
  ownerId: string,
  { description, scopes, models, limits, expiresAtMs }:
    & Pick<KeyRecord, "scopes" | "models">
    & Omit<KeySettings, "scopes" | "models">,
  nowMs: number,
): { key: KeyRecord; value: string } {
  const value = mintKey(randomBytes);
  const key: KeyRecord = {
    id: mintKeyId(randomBytes),
    ownerId,
    state: "enabled",
    description,
    hint: keyHint(value),
    hash: hashKeyValue(value),
    scopes,
    models,
    limits,
    createdAtMs: nowMs,
    expiresAtMs,
    version: 1,
  };
  return { key, value };
}

async function wasMade(
  redis: RedisLink,
  ownerId: string,
  once: string,
): Promise<boolean> {
  return await redis.command(["EXISTS", onceKey(ownerId, once)]) === 1;
}

async function writeLookup(
  { writer, randomBytes }: KeyStoreDeps,
  { hash, id, ownerId }: KeyRecord,
): Promise<void> {
  await writer.evalScript(
    LOOKUP_SCRIPT,
    [hashKey(hash), STORE_KEY],
    [`${id}:${ownerId}`, mintStoreName(randomBytes)],
  );
}

async function takeBackLookup(
  writer: RedisLink,
  { hash }: KeyRecord,
  { reason }: Exclude<CommitResult, { done: true }>,
): Promise<{ ok: false; reason: Refusal }> {
  await writer.command(["DEL", hashKey(hash)]);
  return { ok: false, reason };
}

/** Redis' clock is the one that expiry is judged by. */
async function redisTimeMs(redis: RedisLink): Promise<number> {
  const [seconds, micros] = asList(await redis.command(["TIME"])).map(asNumber);
  return (seconds ?? 0) * 1_000 + Math.floor((micros ?? 0) / 1_000);
}

function entry(
  action: AuditAction,
  { id, hint, description }: KeyRecord,
  { by, ip }: Actor,
  detail: string,
): AuditEntry {
  return { action, by, ip, keyId: id, hint, description, detail };
}

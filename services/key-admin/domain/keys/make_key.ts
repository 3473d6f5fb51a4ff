import {
  hashKeyValue,
  keyHint,
  mintKey,
  mintKeyId,
  mintStoreName,
} from "@gateway/shared/keys/key";
import type { RandomBytes } from "@gateway/shared/ids";
import {
  hashKey,
  type KeyRecord,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { confirmDurable } from "../store/durability.ts";
import { onceKey } from "../store/names.ts";
import { asList, asNumber } from "../store/reply.ts";
import { readForChange, retry } from "./change_key.ts";
import { auditEntry } from "../audit/audit.ts";
import { commit, type CommitResult } from "./commit.ts";
import { describeChange, isExpired, retired } from "./key_changes.ts";
import type {
  CreateOrder,
  KeyStoreDeps,
  Made,
  Refusal,
  Target,
} from "./lifecycle.ts";
import { LOOKUP_SCRIPT } from "./lookup.lua.ts";
import type { KeySettings } from "./settings.ts";

/** Steps that make a key: the look-up first, then the record, see `key_store.ts`. */

/** Makes a key. */
export async function create(
  deps: KeyStoreDeps,
  { ownerId, settings, actor, once }: CreateOrder,
): Promise<Made> {
  const nowMs = await redisTimeMs(deps.redis);
  const { key, value } = mint(deps.randomBytes, ownerId, settings, nowMs);
  await writeLookup(deps, key);
  const result = await commit(deps.writer, {
    ownerId,
    changes: [{ before: null, after: key }],
    audit: [auditEntry("key.created", key, actor, "")],
    once: once ?? null,
  });
  if (!result.done) return await takeBackLookup(deps.writer, key, result);
  await confirmDurable(deps.writer);
  return { ok: true, key, value };
}

/** Makes a key with the settings of another one, which ends after `graceMs`. */
export async function rotate(
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
        auditEntry("key.created", key, actor, `replaces ${before.id}`),
        auditEntry("key.rotated", before, actor, describeChange(before, after)),
      ],
      once: once ?? null,
    });
    if (!result.done) return await takeBackLookup(deps.writer, key, result);
    await confirmDurable(deps.writer);
    return { ok: true, key, value };
  });
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

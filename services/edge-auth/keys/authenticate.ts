/** Authentication: finds the principal that an `Authorization` header stands for. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import * as key from "@gateway/shared/keys/key";
import {
  hashKey,
  type Principal,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS, REQUEST_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { redisFailure, storeIsEmpty, unauthorized } from "../limits/refusal.ts";
import { remember } from "@gateway/shared/process/maps";
import { FIND } from "../limits/scripts.ts";
import { createUnknownKeyLimit } from "./unknown_key_limit.ts";

/**
 * RFC 6750 section 2.1; the scheme's case does not matter (RFC 9110 section 11.1).
 * Anchored: two joined headers are no credential.
 */
const BEARER = /^bearer +([A-Za-z0-9._~+/=-]+) *$/i;

/**
 * Throws the same `unauthorized` for a credential that is missing, malformed or
 * unknown.
 */
export async function authenticate(
  header: string,
  clientAddress: () => string,
  lookup: Pick<KeyLookup, "find">,
): Promise<Principal> {
  const isTooLong = header.length > REQUEST_LIMITS.authorizationBytesMax;
  const credential = isTooLong ? "" : BEARER.exec(header)?.[1] ?? "";
  if (!key.isWellFormedKey(credential)) throw unauthorized();
  const hash = key.hashKeyValue(credential);
  const principal = await lookup.find(hash, clientAddress);
  if (principal === null) throw unauthorized();
  return principal;
}

/** Finds whose a key is: see {@link createKeyLookup}. */
export type KeyLookup = ReturnType<typeof createKeyLookup>;

/**
 * Finds the principal of the hash of a key. The pair never changes while the key
 * exists, so it is remembered; the admission, which calls Redis every time, detects a
 * key that was disabled. Unknown hashes are remembered as well, to withstand floods:
 * keys are random, so none can have been tried before it was created.
 */
export function createKeyLookup({ redis, now, log, unknownPerSecond }: {
  redis: Pick<RedisLink, "state" | "command" | "evalScript">;
  now: MonotonicNow;
  log: Log;
  unknownPerSecond: number;
}) {
  const known = new Map<string, Principal>();
  const unknownUntilMs = new Map<string, number>();
  const reads = new Map<string, Promise<Principal | null>>();
  const limited = createUnknownKeyLimit({ perSecond: unknownPerSecond, now });
  /**
   * Name of the data set in Redis when last seen; null: none, undefined: not seen yet.
   */
  let store: unknown;

  /** A different data set may contain keys that were unknown. */
  const sawStore = (name: unknown) => {
    if (name === store) return;
    // A Redis that has lost its data looks like one that never held a key.
    if (name === null) {
      const message =
        "Redis has no keys: none was ever created, or its data was lost; requests get 503";
      log.warn("key_store", { to: "missing", message });
    } else if (store !== undefined) {
      log.info("key_store", { to: store === null ? "present" : "replaced" });
    }
    store = name;
    unknownUntilMs.clear();
  };

  const lookAtStore = () => {
    if (redis.state !== "ready") return;
    // The link logs a fault, and the next check follows soon.
    redis.command(["GET", STORE_KEY]).then(sawStore, () => {});
  };

  const read = async (hash: string): Promise<Principal | null> => {
    try {
      const { checkMs: deadlineMs } = KEY_LIMITS;
      const args = [hashKey(hash)];
      const reply = await redis.evalScript(FIND, { args }, { deadlineMs });
      const [pair = null, name = null] = Array.isArray(reply) ? reply : [];
      sawStore(name);
      if (pair !== null) {
        const principal = parsePair(String(pair));
        remember(known, {
          key: hash,
          value: principal,
          sizeMax: KEY_LIMITS.lookupEntriesMax,
        });
        return principal;
      }
      if (name === null) throw storeIsEmpty();
      const untilMs = now() + KEY_LIMITS.unknownMs;
      remember(unknownUntilMs, {
        key: hash,
        value: untilMs,
        sizeMax: KEY_LIMITS.unknownEntriesMax,
      });
      return null;
    } catch (cause) {
      throw redisFailure(cause);
    }
  };

  return {
    /**
     * Null if there is no such key. Throws `service_unavailable` if Redis cannot answer
     * or has lost its data, `rate_limit_exceeded` after too many unknown keys.
     */
    async find(hash: string, address: () => string): Promise<Principal | null> {
      const principal = known.get(hash);
      if (principal !== undefined) return principal;
      if (now() < (unknownUntilMs.get(hash) ?? -Infinity)) return null;
      const reading = reads.get(hash) ??
        limited({ address: address(), hash }, () => read(hash))
          .finally(() => reads.delete(hash));
      reads.set(hash, reading);
      return await reading;
    },
    forget({ keyId }: Principal): void {
      for (const [hash, principal] of known) {
        if (principal.keyId === keyId) return void known.delete(hash);
      }
    },
    /** Watches which data set Redis holds, until the returned function is called. */
    watchStore(): () => void {
      lookAtStore();
      const timer = setInterval(lookAtStore, KEY_LIMITS.storeWatchMs);
      return () => clearInterval(timer);
    },
  };
}

/** `<key id>:<owner id>`. */
function parsePair(pair: string): Principal {
  const [keyId = "", ownerId = "", ...rest] = pair.split(":");
  if (!key.isKeyId(keyId) || !key.isOwnerId(ownerId) || rest.length > 0) {
    throw new Error("Malformed entry of a key hash in Redis");
  }
  return { keyId, ownerId };
}

import type { MonotonicNow } from "@gateway/shared/process/clock";
import { isKeyId, isOwnerId } from "@gateway/shared/keys/key";
import { hashKey, type Principal } from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { RedisLink } from "@gateway/shared/redis/link";
import { dropOldest } from "./drop_oldest.ts";
import { FIND } from "./find.lua.ts";
import { keysUnreachable, redisFailure, storeIsEmpty } from "./refusal.ts";

export interface PrincipalLookupOptions {
  redis: RedisLink;
  now: MonotonicNow;
  /** Principals remembered; the longest unused is dropped. */
  entriesMax: number;
  /** Unknown hashes remembered, and for how long. */
  unknownEntriesMax: number;
  unknownMs: number;
  /** Told with every answer in whose data was looked, null where Redis holds none. */
  onStore: (name: string | null) => void;
}

/**
 * Finds whose key a hash belongs to. The pair never changes while the key lives,
 * so it is remembered; that a key is deleted or disabled is noticed by the
 * admission, which asks Redis every time. That a hash is unknown is remembered as
 * well, against floods: nobody can have tried a random key before it was made.
 */
export interface PrincipalLookup {
  /** What is remembered, without asking: a principal, null for unknown, undefined for neither. */
  remembered(hash: string): Principal | null | undefined;
  /**
   * The principal, or null where there is no such key. One read on a miss, shared
   * by all who ask for the same hash. Throws `ApiError` `service_unavailable`
   * where Redis cannot answer or has lost its data: an unreachable key is not an
   * unknown one.
   */
  find(hash: string): Promise<Principal | null>;
  /** Forgets a principal, as `find` gave it, whose key the admission no longer knows. */
  forget(principal: Principal): void;
  /** Forgets which hashes were unknown: other data may know them. */
  forgetUnknown(): void;
}

/** Makes an empty lookup. `hash` is always the SHA-256 of a key in base64url. */
export function createPrincipalLookup(
  options: PrincipalLookupOptions,
): PrincipalLookup {
  const { redis, now, entriesMax, unknownEntriesMax, unknownMs, onStore } =
    options;
  const known = new Map<string, Principal>();
  const unknownUntilMs = new Map<string, number>();
  const hashes = new WeakMap<Principal, string>();
  const reads = new Map<string, Promise<Principal | null>>();

  const remembered = (hash: string): Principal | null | undefined => {
    const principal = known.get(hash);
    if (principal !== undefined) {
      // Moved to the end: the map's order is the order of use.
      known.delete(hash);
      known.set(hash, principal);
      return principal;
    }
    const untilMs = unknownUntilMs.get(hash);
    if (untilMs === undefined) return undefined;
    if (now() < untilMs) return null;
    unknownUntilMs.delete(hash);
    return undefined;
  };

  const read = async (hash: string): Promise<Principal | null> => {
    const { principal, store } = await readPrincipal(redis, hash);
    onStore(store);
    if (principal === null) {
      if (store === null) throw keysUnreachable(storeIsEmpty());
      unknownUntilMs.set(hash, now() + unknownMs);
      dropOldest(unknownUntilMs, unknownEntriesMax);
    } else {
      known.set(hash, principal);
      hashes.set(principal, hash);
      dropOldest(known, entriesMax);
    }
    return principal;
  };

  return {
    remembered,
    find(hash) {
      const found = remembered(hash);
      if (found !== undefined) return Promise.resolve(found);
      const running = reads.get(hash);
      if (running !== undefined) return running;
      const reading = read(hash).finally(() => reads.delete(hash));
      reads.set(hash, reading);
      return reading;
    },
    forget(principal) {
      const hash = hashes.get(principal);
      if (hash !== undefined) known.delete(hash);
    },
    forgetUnknown: () => unknownUntilMs.clear(),
  };
}

/** What Redis says of a hash. */
interface Found {
  principal: Principal | null;
  /** Name of the data that was looked in; null: there is none. */
  store: string | null;
}

async function readPrincipal(redis: RedisLink, hash: string): Promise<Found> {
  let reply;
  try {
    reply = await redis.evalScript(FIND, [], [hashKey(hash)], {
      deadlineMs: KEY_LIMITS.checkMs,
    });
  } catch (cause) {
    throw redisFailure(cause);
  }
  const [pair = null, store = null] = Array.isArray(reply) ? reply : [];
  return {
    principal: pair === null ? null : parsePair(String(pair)),
    store: store === null ? null : String(store),
  };
}

/** `<key id>:<owner id>`. */
function parsePair(pair: string): Principal {
  const [keyId = "", ownerId = "", ...rest] = pair.split(":");
  if (!isKeyId(keyId) || !isOwnerId(ownerId) || rest.length > 0) {
    throw new Error("Malformed entry of a key hash in redis");
  }
  return { keyId, ownerId };
}

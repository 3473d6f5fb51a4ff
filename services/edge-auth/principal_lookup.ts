import type { MonotonicNow } from "@gateway/shared/clock";
import { hashKey, type Principal } from "@gateway/shared/keys/record";
import { ApiError } from "@gateway/shared/openai/error";
import type { RedisLink } from "@gateway/shared/redis/link";

export interface PrincipalLookupOptions {
  redis: RedisLink;
  now: MonotonicNow;
  /** Principals remembered; the longest unused is dropped. */
  entriesMax: number;
  /** Unknown hashes remembered, and for how long. */
  unknownEntriesMax: number;
  unknownMs: number;
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
   * where Redis cannot answer: an unreachable key is not an unknown one.
   */
  find(hash: string): Promise<Principal | null>;
  /** Forgets a principal, as `find` gave it, whose key the admission no longer knows. */
  forget(principal: Principal): void;
}

/** Shorter than an admission's: with it, two calls stay well under a second. */
const DEADLINE_MS = 100;
const RETRY_AFTER_MS = 1_000;
/** `<key id>:<owner id>`. */
const PAIR = /^(key_[0-9A-Za-z]{20}):(own_[0-9A-Za-z]{20})$/;

/** Makes an empty lookup. `hash` is always the SHA-256 of a key in base64url. */
export function createPrincipalLookup(
  options: PrincipalLookupOptions,
): PrincipalLookup {
  const { redis, now, entriesMax, unknownEntriesMax, unknownMs } = options;
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
    const principal = await readPrincipal(redis, hash);
    if (principal === null) {
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
  };
}

async function readPrincipal(
  redis: RedisLink,
  hash: string,
): Promise<Principal | null> {
  let value;
  try {
    value = await redis.command(["GET", hashKey(hash)], {
      deadlineMs: DEADLINE_MS,
    });
  } catch (cause) {
    throw new ApiError(
      "service_unavailable",
      "The service cannot check API keys at the moment. Try again shortly.",
      { retryAfterMs: RETRY_AFTER_MS, cause },
    );
  }
  if (value === null) return null;
  const [, keyId, ownerId] = PAIR.exec(String(value)) ?? [];
  if (keyId === undefined || ownerId === undefined) {
    throw new Error("Malformed entry of a key hash in redis");
  }
  return { keyId, ownerId };
}

function dropOldest(map: Map<string, unknown>, sizeMax: number): void {
  if (map.size <= sizeMax) return;
  for (const oldest of map.keys()) {
    map.delete(oldest);
    return;
  }
}

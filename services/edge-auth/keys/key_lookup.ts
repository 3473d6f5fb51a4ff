/** Looks up the owner and the rights of a key, without touching its limits. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { isKeyId, isOwnerId } from "@gateway/shared/keys/key";
import {
  hashKey,
  type KeyScope,
  limiterKey,
  type Principal,
  recordKey,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink, RedisReply } from "@gateway/shared/redis/link";
import { defineScript, type RedisScript } from "@gateway/shared/redis/script";
import {
  keysUnreachable,
  redisFailure,
  refusalError,
  storeIsEmpty,
} from "../limits/refusal.ts";
import { remember } from "../limits/bounded_map.ts";
import { createUnknownKeyLimit } from "./unknown_key_limit.ts";

export interface KeyLookupOptions {
  redis: RedisLink;
  now: MonotonicNow;
  log: Log;
  /** Unknown keys that are looked up for one client address, per second. */
  unknownPerSecond: number;
}

/**
 * Reads the ids of a key and its owner and the name of the data set, atomically, so
 * that no key looks unknown because Redis has just lost its data.
 *
 * ```
 * KEYS  none: the keys are only read, and EVALSHA requires write access to KEYS
 * ARGV  1 hash key
 *
 * reply {"<key id>:<owner id>" or nil, name of the store or nil}
 * ```
 */
const FIND: RedisScript = defineScript(
  "find",
  `
return {redis.call('GET', ARGV[1]), redis.call('GET', '${STORE_KEY}')}
`,
);

/**
 * Checks a key without changing anything, for requests without limits and before
 * errors that only the owner of a valid key may see.
 *
 * ```
 * KEYS  1 lim:{owner}:<key>, only to route the call in a cluster
 * ARGV  1 record key   2 scope, or empty
 *
 * reply {"unknown"} {"expired"} {"disabled"} {"scope"}
 *       {"empty"}        Redis holds no keys at all: its data was lost
 *       {"ok", models}   comma-separated ids, empty: all
 * ```
 */
const INSPECT: RedisScript = defineScript(
  "inspect",
  `
local rec = redis.call('HMGET', ARGV[1], 'state', 'expires_at', 'scopes', 'models')
if not rec[1] then return {redis.call('GET', '${STORE_KEY}') and 'unknown' or 'empty'} end
local time = redis.call('TIME')
local expires = tonumber(rec[2] or 0)
if not (expires and expires >= 0) then error('corrupt expires_at in the record of a key') end
if expires > 0 and expires <= time[1] * 1000 + time[2] / 1000 then return {'expired'} end
if rec[1] ~= 'enabled' then return {'disabled'} end
if ARGV[2] ~= '' and not string.find(',' .. (rec[3] or '') .. ',', ',' .. ARGV[2] .. ',', 1, true) then
  return {'scope'}
end
return {'ok', rec[4] or ''}
`,
);

/** The scripts to load when the link connects. */
export const LOOKUP_SCRIPTS: readonly RedisScript[] = [FIND, INSPECT];

/**
 * Finds the principal of a hash, which is the SHA-256 of a key in base64url. The pair
 * never changes while the key exists, so it is remembered; the admission, which calls
 * Redis every time, detects a key that was disabled or deleted. Unknown hashes are
 * remembered as well, to withstand floods: keys are random, so none can have been
 * tried before it was created.
 */
export type KeyLookup = ReturnType<typeof createKeyLookup>;

export function createKeyLookup({
  redis,
  now,
  log,
  unknownPerSecond,
}: KeyLookupOptions) {
  const known = new Map<string, Principal>();
  const unknownUntilMs = new Map<string, number>();
  const reads = new Map<string, Promise<Principal | null>>();
  const limit = createUnknownKeyLimit({ perSecond: unknownPerSecond, now });
  /** Name of the data set in Redis when last seen; null: none, undefined: not seen yet. */
  let store: string | null | undefined;
  let watch: ReturnType<typeof setInterval> | undefined;

  /** A different data set may contain keys that were unknown. */
  const sawStore = (name: string | null) => {
    if (name === store) return;
    // A Redis that has lost its data looks like one that never held a key.
    if (name === null) {
      const meaning =
        "Redis has no keys: none was ever created, or its data was lost";
      log.warn("key_store", { to: "missing", meaning });
    } else if (store !== undefined) {
      log.info("key_store", { to: store === null ? "present" : "replaced" });
    }
    store = name;
    unknownUntilMs.clear();
  };

  const lookAtStore = () => {
    if (redis.state !== "ready") return;
    redis.command(["GET", STORE_KEY]).then(
      (name) => sawStore(name === null ? null : String(name)),
      () => {
        // The link logs the fault, and the next check follows soon.
      },
    );
  };

  /** The remembered principal of a hash; null: unknown to Redis, undefined: not remembered. */
  const remembered = (hash: string): Principal | null | undefined => {
    const principal = known.get(hash);
    if (principal !== undefined) {
      remember(known, hash, principal, KEY_LIMITS.lookupEntriesMax);
      return principal;
    }
    const isUnknown = now() < (unknownUntilMs.get(hash) ?? -Infinity);
    return isUnknown ? null : undefined;
  };

  const read = async (hash: string): Promise<Principal | null> => {
    const reply = await ask(redis, FIND, [], [hashKey(hash)]);
    const [pair = null, name = null] = reply;
    sawStore(name === null ? null : String(name));
    if (pair === null) {
      if (name === null) throw keysUnreachable(storeIsEmpty());
      const untilMs = now() + KEY_LIMITS.unknownMs;
      remember(unknownUntilMs, hash, untilMs, KEY_LIMITS.unknownEntriesMax);
      return null;
    }
    const principal = parsePair(String(pair));
    remember(known, hash, principal, KEY_LIMITS.lookupEntriesMax);
    return principal;
  };

  /** Forgets a principal whose key no longer exists. */
  const forget = ({ keyId }: Principal): void => {
    for (const [hash, principal] of known) {
      if (principal.keyId === keyId) return void known.delete(hash);
    }
  };

  return {
    remembered,
    forget,
    /**
     * The principal, or null if there is no such key. A hash that is not remembered
     * costs one read, which concurrent calls share. Throws `ApiError`:
     * `service_unavailable` if Redis cannot answer or has lost its data (a key that
     * cannot be read is not unknown), `rate_limit_exceeded` if the address has sent
     * too many unknown keys.
     */
    find(hash: string, address: string): Promise<Principal | null> {
      const found = remembered(hash);
      if (found !== undefined) return Promise.resolve(found);
      const running = reads.get(hash);
      if (running !== undefined) return running;
      const reading = limit.run({ address, hash }, () => read(hash))
        .finally(() => reads.delete(hash));
      reads.set(hash, reading);
      return reading;
    },
    /**
     * The models the key may use; empty: all. Throws `unauthorized`,
     * `key_disabled`, `service_unavailable`, or `forbidden` for a key without the
     * scope (null: none is needed).
     */
    async check(
      principal: Principal,
      scope: KeyScope | null,
    ): Promise<readonly string[]> {
      const [status, models] = await ask(redis, INSPECT, [
        limiterKey(principal),
      ], [recordKey(principal), scope ?? ""]);
      switch (status) {
        case "ok":
          return typeof models === "string" && models !== ""
            ? models.split(",")
            : [];
        case "empty":
          throw keysUnreachable(storeIsEmpty());
        case "unknown":
        case "expired":
        case "disabled":
        case "scope":
          if (status === "unknown") forget(principal);
          throw refusalError({ isAdmitted: false, reason: status });
        default:
          throw new Error(`Unexpected reply of the inspect script: ${status}`);
      }
    },
    /** Starts watching which data set Redis holds. */
    start(): void {
      lookAtStore();
      watch ??= setInterval(lookAtStore, KEY_LIMITS.storeWatchMs);
    },
    stop(): void {
      clearInterval(watch);
    },
  };
}

/** Calls a script whose reply is an array. */
async function ask(
  redis: RedisLink,
  script: RedisScript,
  keys: readonly string[],
  args: readonly string[],
): Promise<readonly RedisReply[]> {
  try {
    const reply = await redis.evalScript(script, keys, args, {
      deadlineMs: KEY_LIMITS.checkMs,
    });
    return Array.isArray(reply) ? reply : [];
  } catch (cause) {
    throw redisFailure(cause);
  }
}

/** `<key id>:<owner id>`. */
function parsePair(pair: string): Principal {
  const [keyId = "", ownerId = "", ...rest] = pair.split(":");
  if (!isKeyId(keyId) || !isOwnerId(ownerId) || rest.length > 0) {
    throw new Error("Malformed entry of a key hash in Redis");
  }
  return { keyId, ownerId };
}

/** Finds whose key it is and what the key may do. Consumes nothing of its limits. */
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
import { dropOldest } from "./drop_oldest.ts";

export interface KeyLookupOptions {
  redis: RedisLink;
  now: MonotonicNow;
  /** 0 ≤ x < 1. */
  random: () => number;
  log: Log;
  /** Principals remembered; the longest unused is dropped. */
  entriesMax?: number;
  /** Unknown hashes remembered. */
  unknownEntriesMax?: number;
}

/**
 * Finds whose key a hash belongs to. The pair never changes while the key lives,
 * so it is remembered; that a key is deleted or disabled is noticed by the
 * admission, which asks Redis every time. That a hash is unknown is remembered as
 * well, to withstand floods: a random key cannot have been tried before it existed.
 */
export interface KeyLookup {
  /** What is remembered, without asking: a principal, null for unknown, undefined for neither. */
  remembered(hash: string): Principal | null | undefined;
  /**
   * The principal, or null where there is no such key. One read on a miss, shared
   * by all who ask for the same hash. Throws `ApiError` `service_unavailable`
   * where Redis cannot answer or has lost its data: an unreachable key is not an
   * unknown one.
   */
  find(hash: string): Promise<Principal | null>;
  /** Forgets a principal, as `find` gave it, whose key does not exist any more. */
  forget(principal: Principal): void;
  /**
   * Whether the key is enabled, alive and has this right (null: any). Throws
   * `unauthorized`, `key_disabled`, `forbidden` or `service_unavailable`.
   * Returns the models the key may use; empty: all.
   */
  check(
    principal: Principal,
    scope: KeyScope | null,
  ): Promise<readonly string[]>;
  /** Starts watching which data set Redis holds. */
  start(): void;
  stop(): void;
}

/**
 * Finds whose key it is and the name of the data set, atomically, so that a server
 * that has just lost its data does not make a key look unknown.
 *
 * ```
 * KEYS  none: read only, and in KEYS EVALSHA demands write access
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
 * Checks a key without changing anything: for calls that are not rate limited, and
 * for error details that only a valid caller may see.
 *
 * ```
 * KEYS  1 lim:{owner}:<key>, only to find the server in a cluster
 * ARGV  1 record key   2 scope, or empty
 *
 * reply {"unknown"} {"expired"} {"disabled"} {"scope"}
 *       {"empty"}        no such key, but no other either: the data is gone
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

/** Makes an empty lookup. `hash` is always the SHA-256 of a key in base64url. */
export function createKeyLookup(options: KeyLookupOptions): KeyLookup {
  const {
    redis,
    now,
    random,
    log,
    entriesMax = KEY_LIMITS.lookupEntriesMax,
    unknownEntriesMax = KEY_LIMITS.unknownEntriesMax,
  } = options;
  const known = new Map<string, Principal>();
  const unknownUntilMs = new Map<string, number>();
  const hashes = new WeakMap<Principal, string>();
  const reads = new Map<string, Promise<Principal | null>>();
  /** Name of the data set in Redis when last seen; null: none, undefined: not known yet. */
  let store: string | null | undefined;
  let watch: ReturnType<typeof setInterval> | null = null;

  /** A different data set may contain keys that were unknown. */
  const sawStore = (name: string | null) => {
    if (name === store) return;
    logStore(log, store, name);
    store = name;
    unknownUntilMs.clear();
  };

  const lookAtStore = () => {
    if (redis.state !== "ready") return;
    redis.command(["GET", STORE_KEY]).then(
      (name) => sawStore(name === null ? null : String(name)),
      () => {
        // The link logs what is wrong with Redis; the next look comes soon.
      },
    );
  };

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
    const [pair = null, name = null] = await ask(redis, FIND, [], [
      hashKey(hash),
    ]);
    sawStore(name === null ? null : String(name));
    if (pair === null) {
      if (name === null) throw keysUnreachable(storeIsEmpty());
      unknownUntilMs.set(hash, now() + KEY_LIMITS.unknownMs);
      dropOldest(unknownUntilMs, unknownEntriesMax);
      return null;
    }
    const principal = parsePair(String(pair));
    known.set(hash, principal);
    hashes.set(principal, hash);
    dropOldest(known, entriesMax);
    return principal;
  };

  const forget = (principal: Principal) => {
    const hash = hashes.get(principal);
    if (hash !== undefined) known.delete(hash);
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
    forget,
    async check(principal, scope) {
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
          throw refusalError({ isAdmitted: false, reason: status }, random);
        default:
          throw new Error(`Unexpected reply of the inspect script: ${status}`);
      }
    },
    start() {
      lookAtStore();
      watch ??= setInterval(lookAtStore, KEY_LIMITS.storeWatchMs);
    },
    stop() {
      if (watch !== null) clearInterval(watch);
      watch = null;
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
    throw new Error("Malformed entry of a key hash in redis");
  }
  return { keyId, ownerId };
}

/**
 * Logs when Redis loses its data or gets other data, since a server that has lost
 * it looks like one without any key. Finding data at the start is not logged.
 */
function logStore(
  log: Log,
  known: string | null | undefined,
  name: string | null,
): void {
  const from = known === undefined ? "unknown" : known ? "present" : "missing";
  if (name === null) {
    const meaning =
      "redis holds no keys: no key was made yet, or data was lost";
    log.warn("key_store", { from, to: "missing", meaning });
  } else if (known !== undefined) {
    log.info("key_store", { from, to: known ? "replaced" : "present" });
  }
}

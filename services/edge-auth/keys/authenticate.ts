/** Authentication: finds the principal that an `Authorization` header stands for. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import * as key from "@gateway/shared/keys/key";
import {
  deletedKey,
  hashKey,
  type Principal,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  DeletedKeyError,
  redisFailure,
  storeIsEmpty,
  unauthorized,
} from "../limits/refusal.ts";
import { remember } from "@gateway/shared/process/maps";
import { FIND } from "../limits/scripts.ts";
import { UnknownKeyLimit } from "./unknown_key_limit.ts";

/**
 * RFC 6750 section 2.1; the scheme's case does not matter (RFC 9110 section 11.1).
 * Anchored: two joined headers are no credential.
 */
const BEARER = /^bearer +([A-Za-z0-9._~+/=-]+) *$/i;

/**
 * Returns the principal of a bearer credential, whose key `find` looks up by its hash.
 * Throws the same `unauthorized` for a credential that is missing, malformed or
 * unknown.
 */
export async function authenticate(
  header: string,
  find: (hash: string) => Promise<Principal | null>,
): Promise<Principal> {
  const isTooLong = header.length > REQUEST_LIMITS.authorizationBytesMax;
  const credential = isTooLong ? "" : BEARER.exec(header)?.[1] ?? "";
  if (!key.isWellFormedKey(credential)) throw unauthorized();
  const principal = await find(key.hashKeyValue(credential));
  if (principal === null) throw unauthorized();
  return principal;
}

/** What {@link KeyLookup} needs. */
export interface KeyLookupOptions {
  redis: Pick<RedisLink, "state" | "command" | "evalScript">;
  now: MonotonicNow;
  log: Log;
  /** How many unknown keys are looked up in a second. */
  unknownPerSecond: number;
}

/** A hash that is not of a key. */
interface Unknown {
  /** Until when it is not looked up again. */
  readonly untilMs: number;
  /** Whose key it was, if it was deleted not long ago. */
  readonly deleted: Principal | null;
}

/**
 * Finds the principal of the hash of a key. The pair never changes while the key
 * exists, so it is remembered; the admission, which calls Redis every time, detects a
 * key that was disabled. Unknown hashes are remembered as well, to withstand floods:
 * keys are random, so none can have been tried before it was created.
 */
export class KeyLookup {
  readonly #redis: KeyLookupOptions["redis"];
  readonly #now: MonotonicNow;
  readonly #log: Log;
  readonly #unknownLimit: UnknownKeyLimit;
  readonly #principals = new Map<string, Principal>();
  readonly #unknown = new Map<string, Unknown>();
  readonly #reads = new Map<string, Promise<Principal | null>>();
  /**
   * Name of the data set in Redis when last seen; null: none, undefined: not seen yet.
   */
  #store: unknown;

  constructor({ redis, now, log, unknownPerSecond }: KeyLookupOptions) {
    this.#redis = redis;
    this.#now = now;
    this.#log = log;
    this.#unknownLimit = new UnknownKeyLimit({
      perSecond: unknownPerSecond,
      now,
    });
  }

  /**
   * Null if there is no such key. Throws {@link DeletedKeyError} if there was one,
   * `service_unavailable` if Redis cannot answer or has lost its data,
   * `rate_limit_exceeded` after too many unknown keys.
   */
  async find(hash: string, address: () => string): Promise<Principal | null> {
    const principal = this.#principals.get(hash);
    if (principal !== undefined) return principal;
    const unknown = this.#unknown.get(hash);
    if (unknown !== undefined && this.#now() < unknown.untilMs) {
      return noneOf(unknown);
    }
    const reading = this.#reads.get(hash) ??
      this.#unknownLimit
        .look({ address: address(), hash }, () => this.#read(hash))
        .finally(() => this.#reads.delete(hash));
    this.#reads.set(hash, reading);
    return await reading;
  }

  /** Has the key looked up again when it is next used. */
  forget({ keyId }: Principal): void {
    for (const [hash, principal] of this.#principals) {
      if (principal.keyId === keyId) return void this.#principals.delete(hash);
    }
  }

  /** Watches which data set Redis holds, until the returned function is called. */
  watchStore(): () => void {
    this.#lookAtStore();
    const timer = setInterval(
      () => this.#lookAtStore(),
      KEY_LIMITS.storeWatchMs,
    );
    return () => clearInterval(timer);
  }

  /** A different data set may contain keys that were unknown. */
  #sawStore(name: unknown): void {
    if (name === this.#store) return;
    // A Redis that has lost its data looks like one that never held a key.
    if (name === null) {
      const message =
        "Redis has no keys: none was ever created, or its data was lost; requests get 503";
      this.#log.warn("key_store", { to: "missing", message });
    } else if (this.#store !== undefined) {
      const to = this.#store === null ? "present" : "replaced";
      this.#log.info("key_store", { to });
    }
    this.#store = name;
    this.#unknown.clear();
  }

  #lookAtStore(): void {
    if (this.#redis.state !== "ready") return;
    this.#redis.command(["GET", STORE_KEY]).then(
      (name) => this.#sawStore(name),
      // The link logs a fault, and the next check follows soon.
      () => {},
    );
  }

  async #read(hash: string): Promise<Principal | null> {
    try {
      const { checkMs: deadlineMs } = KEY_LIMITS;
      const args = [hashKey(hash), deletedKey(hash)];
      const reply = await this.#redis.evalScript(
        FIND,
        { args },
        { deadlineMs },
      );
      const [pair = null, name = null, old = null] = Array.isArray(reply)
        ? reply
        : [];
      this.#sawStore(name);
      if (pair !== null) {
        const principal = parsePair(String(pair));
        remember(this.#principals, {
          key: hash,
          value: principal,
          sizeMax: KEY_LIMITS.lookupEntriesMax,
        });
        return principal;
      }
      if (name === null) throw storeIsEmpty();
      const unknown: Unknown = {
        untilMs: this.#now() + KEY_LIMITS.unknownMs,
        deleted: old === null ? null : parsePair(String(old)),
      };
      remember(this.#unknown, {
        key: hash,
        value: unknown,
        sizeMax: KEY_LIMITS.unknownEntriesMax,
      });
      return noneOf(unknown);
    } catch (cause) {
      throw redisFailure(cause);
    }
  }
}

/** There is no key; throws if there was one. */
function noneOf({ deleted }: Unknown): null {
  if (deleted !== null) throw new DeletedKeyError(deleted);
  return null;
}

/** `<key id>:<owner id>`. */
function parsePair(pair: string): Principal {
  const [keyId = "", ownerId = "", ...rest] = pair.split(":");
  if (!key.isKeyId(keyId) || !key.isAccountId(ownerId) || rest.length > 0) {
    throw new Error("Malformed entry of a key hash in Redis");
  }
  return { keyId, ownerId };
}

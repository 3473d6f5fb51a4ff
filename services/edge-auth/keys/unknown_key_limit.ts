/**
 * How many unknown keys an address may try: a look-up costs a read of Redis, and the
 * hash of a key can be guessed no other way.
 */
import { remember } from "@gateway/shared/process/maps";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { ApiError } from "@gateway/shared/openai/error";

/** What is remembered of an address. */
interface Address {
  /** When its full limit is available again. */
  fullAtMs: number;
  /** How many of its look-ups run. */
  running: number;
  /** Set while look-ups wait until none is running; later ones then wait, too. */
  idle: PromiseWithResolvers<void> | null;
}

/** Whose key is looked up, and which. */
export interface UnknownKeyAsk {
  readonly address: string;
  readonly hash: string;
}

const MS_PER_SECOND = 1_000;
/** How many addresses, and how many refused keys, are remembered. */
const ENTRIES_MAX = 10_000;
/**
 * One in this many look-ups is reserved for keys that were refused before: clients with
 * a valid key retry it, attackers guess another.
 */
const KEPT_PART = 4;

/**
 * Limits look-ups of unknown keys by address: `perSecond` at once and per second.
 * Look-ups that find a key do not count, but only as many as the limit run at once; the
 * others wait.
 */
export class UnknownKeyLimit {
  readonly #perSecond: number;
  readonly #intervalMs: number;
  readonly #now: MonotonicNow;
  readonly #addresses = new Map<string, Address>();
  readonly #refused = new Map<string, true>();

  constructor({ perSecond, now }: { perSecond: number; now: MonotonicNow }) {
    this.#perSecond = perSecond;
    this.#intervalMs = MS_PER_SECOND / perSecond;
    this.#now = now;
  }

  /**
   * Returns what `look` finds; null counts as an unknown key. Throws
   * `rate_limit_exceeded` if the address has used up its limit.
   */
  async look<T>(
    { address: name, hash }: UnknownKeyAsk,
    look: () => Promise<T | null>,
  ): Promise<T | null> {
    let address = this.#find(name);
    while (!this.#begins(address, hash)) {
      address.idle ??= Promise.withResolvers<void>();
      await address.idle.promise;
      address = this.#find(name);
    }
    try {
      const found = await look();
      if (found === null) {
        const fullAtMs = Math.max(this.#now(), address.fullAtMs);
        address.fullAtMs = fullAtMs + this.#intervalMs;
      }
      return found;
    } finally {
      end(address);
    }
  }

  /**
   * Counts a look-up that may begin. False if it must wait until none of the address
   * is running. Throws if the limit is used up.
   */
  #begins(address: Address, hash: string): boolean {
    const wasRefused = this.#refused.has(hash);
    const reserve = wasRefused ? 0 : Math.floor(this.#perSecond / KEPT_PART);
    // Read once: nothing would wake those who wait because of an older value.
    const usedMs = Math.max(0, address.fullAtMs - this.#now());
    const free = this.#perSecond - usedMs / this.#intervalMs - reserve;
    if (address.idle === null && free - address.running >= 1) {
      this.#refused.delete(hash);
      address.running += 1;
      return true;
    }
    if (free >= 1) return false;
    remember(this.#refused, { key: hash, value: true, sizeMax: ENTRIES_MAX });
    throw tooManyUnknownKeys();
  }

  #find(name: string): Address {
    const address = this.#addresses.get(name) ??
      { fullAtMs: 0, running: 0, idle: null };
    remember(this.#addresses, {
      key: name,
      value: address,
      sizeMax: ENTRIES_MAX,
    });
    return address;
  }
}

/** A look-up of the address has ended; the last one lets those that wait try again. */
function end(address: Address): void {
  address.running -= 1;
  if (address.running > 0) return;
  address.idle?.resolve();
  address.idle = null;
}

const tooManyUnknownKeys = () =>
  new ApiError(
    "rate_limit_exceeded",
    "Too many requests with unknown API keys from your address. " +
      "Please try again in 1s.",
    { retryAfterMs: MS_PER_SECOND },
  );

import { remember } from "@gateway/shared/process/maps";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { ApiError } from "@gateway/shared/openai/error";

interface Address {
  /** When its full limit is available again. */
  fullAtMs: number;
  running: number;
  /** Set while look-ups wait until none is running; later ones then wait, too. */
  idle: PromiseWithResolvers<void> | null;
}

const MS_PER_SECOND = 1_000;
const ENTRIES_MAX = 10_000;
/**
 * One in this many look-ups is reserved for keys that were refused before: clients with
 * a valid key retry it, attackers guess another.
 */
const KEPT_PART = 4;

/**
 * Returns a function that looks a key up, or throws `rate_limit_exceeded` if the
 * address has used up its limit of unknown keys (`look` returned null). Look-ups that
 * find a key do not count, but only as many as the limit run at once; the others wait.
 */
export function createUnknownKeyLimit(
  { perSecond, now }: { perSecond: number; now: MonotonicNow },
) {
  const intervalMs = MS_PER_SECOND / perSecond;
  const addresses = new Map<string, Address>();
  const refused = new Map<string, true>();

  const find = (name: string): Address => {
    const address = addresses.get(name) ??
      { fullAtMs: 0, running: 0, idle: null };
    remember(addresses, {
      key: name,
      value: address,
      sizeMax: ENTRIES_MAX,
    });
    return address;
  };

  const end = (address: Address): void => {
    address.running -= 1;
    if (address.running > 0) return;
    address.idle?.resolve();
    address.idle = null;
  };

  return async <T>(
    { address: name, hash }: { address: string; hash: string },
    look: () => Promise<T | null>,
  ): Promise<T | null> => {
    const kept = refused.has(hash) ? 0 : Math.floor(perSecond / KEPT_PART);
    let address = find(name);
    for (;;) {
      // Read once: nothing would wake those who wait because of an older value.
      const usedMs = Math.max(0, address.fullAtMs - now());
      const free = perSecond - usedMs / intervalMs - kept;
      if (address.idle === null && free - address.running >= 1) break;
      if (free < 1) {
        remember(refused, { key: hash, value: true, sizeMax: ENTRIES_MAX });
        throw tooManyUnknownKeys();
      }
      address.idle ??= Promise.withResolvers<void>();
      await address.idle.promise;
      address = find(name);
    }
    refused.delete(hash);
    address.running += 1;
    try {
      const found = await look();
      if (found === null) {
        address.fullAtMs = Math.max(now(), address.fullAtMs) + intervalMs;
      }
      return found;
    } finally {
      end(address);
    }
  };
}

const tooManyUnknownKeys = () =>
  new ApiError(
    "rate_limit_exceeded",
    "Too many requests with unknown API keys from your address. " +
      "Please try again in 1s.",
    { retryAfterMs: MS_PER_SECOND },
  );

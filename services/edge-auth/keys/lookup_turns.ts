/** Bounds how many unknown keys a client address may have looked up per second. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Deadlines, Timed } from "@gateway/shared/process/deadlines";
import { ApiError } from "@gateway/shared/openai/error";
import { dropOldest } from "./drop_oldest.ts";

export interface LookupTurns {
  /**
   * Resolves when the key with this hash may be looked up. Rejects with
   * `rate_limit_exceeded` after a second in vain. Of those who wait, whoever was
   * refused most often goes first: a key that exists is asked for again and again,
   * a guess is not.
   */
  take(address: string, hash: string): Promise<void>;
  /** The look-up found a key, or could not be made: it does not count. */
  giveBack(address: string): void;
}

export interface LookupTurnsOptions {
  perSecond: number;
  now: MonotonicNow;
  deadlines: Deadlines;
}

interface Waiter extends Timed {
  refusals: number;
  go(): void;
}

interface Address {
  turns: number;
  filledAtMs: number;
  waiting: Waiter[];
  timer: Timed | null;
}

const WAIT_MS = 1_000;
const MS_PER_SECOND = 1_000;
/** Addresses, waiting look-ups of one, and refused hashes that are kept in mind. */
const ENTRIES_MAX = 10_000;

export function createLookupTurns(
  { perSecond, now, deadlines }: LookupTurnsOptions,
): LookupTurns {
  const addresses = new Map<string, Address>();
  const refusals = new Map<string, number>();

  const find = (name: string): Address => {
    const address = addresses.get(name) ??
      { turns: perSecond, filledAtMs: now(), waiting: [], timer: null };
    // Set again, so that the busiest addresses are the last to be dropped.
    addresses.delete(name);
    addresses.set(name, address);
    dropOldest(addresses, ENTRIES_MAX);
    return address;
  };

  const fill = (address: Address) => {
    const nowMs = now();
    const more = (nowMs - address.filledAtMs) * perSecond / MS_PER_SECOND;
    address.turns = Math.min(perSecond, address.turns + more);
    address.filledAtMs = nowMs;
  };

  /** Lets go on as many as have a turn, and comes back for the next. */
  const pump = (address: Address) => {
    fill(address);
    while (address.turns >= 1 && address.waiting.length > 0) {
      address.turns -= 1;
      nextOf(address.waiting).go();
    }
    if (address.waiting.length === 0 || address.timer !== null) return;
    const waitMs = Math.max(1, (1 - address.turns) * MS_PER_SECOND / perSecond);
    address.timer = {
      expiresAtMs: now() + waitMs,
      expire() {
        address.timer = null;
        pump(address);
      },
    };
    deadlines.add(address.timer);
  };

  const refuse = (hash: string): ApiError => {
    refusals.set(hash, (refusals.get(hash) ?? 0) + 1);
    dropOldest(refusals, ENTRIES_MAX);
    return tooManyLookups();
  };

  return {
    take(name, hash) {
      const address = find(name);
      fill(address);
      if (address.turns >= 1 && address.waiting.length === 0) {
        address.turns -= 1;
        return Promise.resolve();
      }
      if (address.waiting.length >= ENTRIES_MAX) {
        return Promise.reject(refuse(hash));
      }
      return new Promise((resolve, reject) => {
        const waiter: Waiter = {
          refusals: refusals.get(hash) ?? 0,
          expiresAtMs: now() + WAIT_MS,
          go() {
            deadlines.remove(waiter);
            refusals.delete(hash);
            resolve();
          },
          expire() {
            address.waiting.splice(address.waiting.indexOf(waiter), 1);
            reject(refuse(hash));
          },
        };
        address.waiting.push(waiter);
        deadlines.add(waiter);
        pump(address);
      });
    },
    giveBack(name) {
      const address = find(name);
      address.turns += 1;
      pump(address);
    },
  };
}

/** Takes out whoever was refused most often, the first of equals. */
function nextOf(waiting: Waiter[]): Waiter {
  let at = 0;
  for (const [index, waiter] of waiting.entries()) {
    if (waiter.refusals > (waiting[at]?.refusals ?? 0)) at = index;
  }
  const [next] = waiting.splice(at, 1);
  if (next === undefined) throw new RangeError("Nobody waits");
  return next;
}

function tooManyLookups(): ApiError {
  return new ApiError(
    "rate_limit_exceeded",
    "Too many requests with unknown API keys from your address. " +
      `Please try again in ${WAIT_MS / MS_PER_SECOND}s.`,
    { retryAfterMs: WAIT_MS },
  );
}

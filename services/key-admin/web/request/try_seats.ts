/** Seats on the page "Try it", which are memory for an upload or a whole answer. */

import { Refused } from "../context.ts";

/** How many seats there are. */
interface SeatLimits {
  /** Seats of all accounts together. Beyond them, 503. */
  heldAtOnce: number;
  /** Seats of one account, which leaves some for the others. Beyond them, 429. */
  heldPerOwner: number;
}

/**
 * Bounds the memory that uploads and whole answers take. A seat is for accounts, of
 * which each gets a few: whoever has not signed in cannot take one.
 */
export class TrySeats {
  readonly #limits: SeatLimits;
  readonly #takenByOwner = new Map<string, number>();
  #seats = 0;

  constructor(limits: SeatLimits) {
    this.#limits = limits;
  }

  /**
   * Takes a seat until the result is disposed of. Throws a {@link Refused} if none is
   * left for this account.
   */
  take(ownerId: string): Disposable {
    const { heldAtOnce, heldPerOwner } = this.#limits;
    const own = this.#takenByOwner.get(ownerId) ?? 0;
    if (own >= heldPerOwner) throw new Refused(429, OWN_BUSY, AGAIN_SOON);
    if (this.#seats >= heldAtOnce) throw new Refused(503, BUSY, AGAIN_LATER);
    this.#seats += 1;
    this.#takenByOwner.set(ownerId, own + 1);
    return { [Symbol.dispose]: () => this.#release(ownerId) };
  }

  #release(ownerId: string): void {
    const left = (this.#takenByOwner.get(ownerId) ?? 0) - 1;
    this.#seats -= 1;
    if (left > 0) this.#takenByOwner.set(ownerId, left);
    else this.#takenByOwner.delete(ownerId);
  }
}

const OWN_BUSY =
  "Your account is sending too many requests from Try it at the same time. Try again when one of them has ended";
const BUSY = "Try it is handling too many requests. Try again in a minute";
const AGAIN_SOON = { headers: { "retry-after": "10" } };
const AGAIN_LATER = { headers: { "retry-after": "60" } };

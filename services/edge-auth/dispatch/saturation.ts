/**
 * The models of a worker whose servers are at limits of theirs, as it has said when it
 * rejected jobs. It knows best when they have room again, but is not asked for every
 * request that waits: only as many are offered as there are signs of room.
 */

/** The earliest time after which a request that waits is offered again. */
const ASK_AGAIN_MS_MIN = 50;
/**
 * The latest time after which it is, however long a limit lasts: operators may have
 * changed it.
 */
const ASK_AGAIN_MS_MAX = 250;
/** What a worker has accepted shows that there is room: twice as many may follow. */
const OFFERS_PER_ACCEPTED = 2;
/** What a worker has said counts for this long after its last rejection. */
const FORGET_MS = 1_000;

/** What is known of the servers of one model, as the worker has reported it. */
interface Gate {
  /** How long the limit lasts at least. */
  untilMs: number;
  /** When it was rejected last. */
  rejectedAtMs: number;
  /** When one more may be offered to see whether there is room. */
  askAtMs: number;
  /** How many may be offered because there was room. */
  offersLeft: number;
}

/** Bounds the offers of one worker, by their models. */
export class Saturation {
  readonly #gates = new Map<string, Gate>();

  /** Whether a request for a model may be offered now. */
  isOpen(model: string, nowMs: number): boolean {
    if (this.#gates.size === 0) return true;
    const gate = this.#gateOf(model, nowMs);
    return gate === undefined || gate.offersLeft > 0 || nowMs >= gate.askAtMs;
  }

  /** How long a limit of the servers of a model lasts at least; 0: none is known. */
  waitMs(model: string, nowMs: number): number {
    const gate = this.#gateOf(model, nowMs);
    if (gate === undefined) return 0;
    return Math.max(ASK_AGAIN_MS_MIN, gate.untilMs - nowMs);
  }

  /** The worker has rejected a request: its servers are at limits for this long. */
  onRejected(model: string, waitMs: number, nowMs: number): void {
    const askMs = Math.max(waitMs, ASK_AGAIN_MS_MIN);
    this.#gates.set(model, {
      untilMs: nowMs + askMs,
      rejectedAtMs: nowMs,
      askAtMs: nowMs + Math.min(askMs, ASK_AGAIN_MS_MAX),
      offersLeft: 0,
    });
  }

  /** A request was offered. */
  onOffered(model: string, nowMs: number): void {
    const gate = this.#gates.get(model);
    if (gate === undefined) return;
    if (gate.offersLeft > 0) gate.offersLeft -= 1;
    else gate.askAtMs = nowMs + ASK_AGAIN_MS_MIN;
  }

  /** The worker has accepted a request. */
  onAccepted(model: string): void {
    const gate = this.#gates.get(model);
    if (gate !== undefined) gate.offersLeft += OFFERS_PER_ACCEPTED;
  }

  /** A request has ended there, whose place another one may take. */
  onEnded(model: string): void {
    const gate = this.#gates.get(model);
    if (gate !== undefined) gate.offersLeft += 1;
  }

  /** The place of one that ends is promised to another edge. */
  onPassed(model: string): void {
    const gate = this.#gates.get(model);
    if (gate !== undefined) gate.offersLeft -= 1;
  }

  #gateOf(model: string, nowMs: number): Gate | undefined {
    const gate = this.#gates.get(model);
    if (gate === undefined) return undefined;
    const isOver = nowMs >= gate.untilMs &&
      nowMs - gate.rejectedAtMs >= FORGET_MS;
    if (!isOver) return gate;
    this.#gates.delete(model);
    return undefined;
  }
}

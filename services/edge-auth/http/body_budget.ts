/**
 * The memory of an edge for the bodies of requests, counted in one place from their
 * first byte until nobody needs them any more: a body that was read is counted while
 * its request waits, and while it may have to be sent to another worker.
 */
import { BODY_WAIT_MS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import type { Timed } from "@gateway/shared/process/deadlines";
import { type LiveMember, LiveSet } from "@gateway/shared/process/maps";

/** Bounds of an edge, in bytes. */
export interface BodyBudgetBounds {
  /** All bodies that it holds. */
  readonly bodiesBytesMax: number;
  /** One body. There is always room for one. */
  readonly bodyBytesMax: number;
}

/** Whose body it is, and how its memory is taken back. */
export interface ShareOwner {
  readonly keyId: string;
  /** Called when the body, which is still being read, must make room for others. */
  readonly refuse: (error: ApiError) => void;
}

/**
 * - `reading`: its client may be slow, so it makes room for others if it is the oldest.
 * - `kept`: it was read and is needed.
 * - `spare`: a worker has it; it is kept only for the case that this worker is lost.
 */
type ShareState = "reading" | "kept" | "spare";

/** What limits the wait for room. */
interface RoomTimer {
  now: () => number;
  deadlines: { add(item: Timed): void; remove(item: Timed): void };
}

interface Waiting {
  readonly share: BodyShare;
  readonly bytes: number;
  readonly resolve: () => void;
}

/**
 * A key may hold this much of the budget, and this much is kept from a key that is
 * alone, so that others always find some.
 */
const SHARE_OF_KEY = 1 / 3;
const MS_PER_SECOND = 1_000;

/** What one body holds of the budget. Must be released once. */
export class BodyShare implements LiveMember {
  readonly keyId: string;
  /** Its number among all shares of the budget, from 0. */
  readonly number: number;
  livePlace: number | undefined = undefined;
  readonly refuse: (error: ApiError) => void;
  readonly #budget: BodyBudget;
  #bytes = 0;
  #state: ShareState = "reading";
  #onNeeded: (() => void) | null = null;

  constructor(budget: BodyBudget, { keyId, refuse }: ShareOwner) {
    this.#budget = budget;
    this.number = budget.nextNumber();
    this.keyId = keyId;
    this.refuse = refuse;
  }

  /** The bytes that it holds. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Who needs the body. */
  get state(): ShareState {
    return this.#state;
  }

  /** The body was read: it is needed, and has this size in the form that is kept. */
  keep(bytes = this.#bytes): void {
    this.#state = "kept";
    this.#onNeeded = null;
    this.resize(bytes);
  }

  /** The body is dispensable: `giveUp` is called if its memory is needed. */
  spare(giveUp: () => void): void {
    this.#state = "spare";
    this.#onNeeded = giveUp;
    this.#budget.serve();
  }

  /** Gives a spare body up. */
  giveUp(): void {
    this.#onNeeded?.();
    this.#onNeeded = null;
  }

  /** Holds this many bytes from now on. */
  resize(bytes: number): void {
    const by = bytes - this.#bytes;
    this.#bytes = bytes;
    this.#budget.count(this, by);
  }

  /** Holds nothing any more. */
  release(): void {
    this.resize(0);
    this.#budget.forget(this);
  }
}

/**
 * Bounds the bytes of bodies. Dispensable bodies make room; if that is not enough, a
 * body of known size waits for a moment. A body beyond the share of its key, which is
 * larger while no other key holds or wants anything, is refused with 429. Beyond the
 * bound of the process, the oldest body that is still being read is refused with 503,
 * so slow senders keep nobody out.
 */
export class BodyBudget {
  readonly #processBytesMax: number;
  readonly #keyBytesMax: number;
  /** The bound of a key while no other holds or wants anything. */
  readonly #loneBytesMax: number;
  readonly #shares = new LiveSet<BodyShare>();
  #numbered = 0;
  readonly #bytesByKey = new Map<string, number>();
  #waiting: Waiting[] = [];
  #bytes = 0;

  constructor({ bodiesBytesMax, bodyBytesMax }: BodyBudgetBounds) {
    this.#processBytesMax = Math.max(bodiesBytesMax, bodyBytesMax);
    const share = bodiesBytesMax * SHARE_OF_KEY;
    this.#keyBytesMax = Math.max(share, bodyBytesMax);
    this.#loneBytesMax = Math.max(bodiesBytesMax - share, bodyBytesMax);
  }

  /** The number of the next share. */
  nextNumber(): number {
    this.#numbered += 1;
    return this.#numbered - 1;
  }

  /** What all bodies hold, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Counts more bytes of a body that is being read. Returns the refusal if there is no
   * room for them.
   */
  grow(share: BodyShare, bytes: number): ApiError | null {
    this.#spareFor(share, bytes);
    if (!this.#fitsKey(share, bytes)) return keyIsFull();
    while (!this.#fitsProcess(bytes)) {
      const oldest = this.#oldest("reading") ?? share;
      if (oldest === share) return processIsFull();
      oldest.refuse(processIsFull());
    }
    share.resize(share.bytes + bytes);
    return null;
  }

  /**
   * Counts all bytes of a body before it is read; waits for at most `BODY_WAIT_MS` if
   * there is no room. Returns the refusal if there is none then.
   */
  reserve(
    share: BodyShare,
    bytes: number,
    timer: RoomTimer,
  ): Promise<ApiError | null> | null {
    return this.#tryReserve(share, bytes)
      ? null
      : this.#waitForRoom(share, bytes, timer);
  }

  /** Gives the room that there is to those that wait for it. */
  serve(): void {
    for (const { share, bytes, resolve } of this.#waiting) {
      if (share.bytes === 0 && this.#tryReserve(share, bytes)) resolve();
    }
  }

  /** Called by a share whose size has changed. */
  count(share: BodyShare, by: number): void {
    this.#shares.add(share);
    this.#bytes += by;
    const bytes = (this.#bytesByKey.get(share.keyId) ?? 0) + by;
    if (bytes > 0) this.#bytesByKey.set(share.keyId, bytes);
    else this.#bytesByKey.delete(share.keyId);
  }

  /** Called by a share that holds nothing any more. */
  forget(share: BodyShare): void {
    this.#shares.delete(share);
    if (this.#waiting.length > 0) this.serve();
  }

  async #waitForRoom(
    share: BodyShare,
    bytes: number,
    { now, deadlines }: RoomTimer,
  ): Promise<ApiError | null> {
    const room = Promise.withResolvers<void>();
    const waiting = { share, bytes, resolve: room.resolve };
    this.#waiting.push(waiting);
    const end = { expiresAtMs: now() + BODY_WAIT_MS, expire: room.resolve };
    deadlines.add(end);
    await room.promise;
    deadlines.remove(end);
    this.#waiting = this.#waiting.filter((each) => each !== waiting);
    return share.bytes > 0 ? null : this.grow(share, bytes);
  }

  #tryReserve(share: BodyShare, bytes: number): boolean {
    this.#spareFor(share, bytes);
    const fits = this.#fitsKey(share, bytes) && this.#fitsProcess(bytes);
    if (fits) share.resize(bytes);
    return fits;
  }

  #fitsKey({ keyId }: BodyShare, bytes: number): boolean {
    const keyBytes = this.#bytesByKey.get(keyId) ?? 0;
    const isAlone = keyBytes === this.#bytes &&
      this.#waiting.every(({ share }) => share.keyId === keyId);
    const most = isAlone ? this.#loneBytesMax : this.#keyBytesMax;
    return keyBytes + bytes <= most;
  }

  #fitsProcess(bytes: number): boolean {
    return this.#bytes + bytes <= this.#processBytesMax;
  }

  /** Gives up dispensable bodies, the key's own first, the oldest first. */
  #spareFor(share: BodyShare, bytes: number): void {
    while (!this.#fitsKey(share, bytes)) {
      const own = this.#oldest("spare", share.keyId);
      if (own === undefined) return;
      own.giveUp();
    }
    while (!this.#fitsProcess(bytes)) {
      const any = this.#oldest("spare");
      if (any === undefined) return;
      any.giveUp();
    }
  }

  #oldest(state: ShareState, keyId?: string): BodyShare | undefined {
    let oldest: BodyShare | undefined;
    for (const share of this.#shares) {
      const isMeant = share.state === state && share.bytes > 0 &&
        (keyId === undefined || share.keyId === keyId);
      if (isMeant && share.number < (oldest?.number ?? Infinity)) {
        oldest = share;
      }
    }
    return oldest;
  }
}

/**
 * Closes the connection, because the rest of the body would be read as the next
 * request.
 */
const CLOSES = { connection: "close" } as const;

function keyIsFull(): ApiError {
  return new ApiError(
    "concurrency_limit_exceeded",
    "The requests of this API key hold too many bytes at the same time. " +
      "Please try again in 1s.",
    {
      retryAfterMs: MS_PER_SECOND,
      reason: "request_bodies",
      headers: CLOSES,
    },
  );
}

function processIsFull(): ApiError {
  return new ApiError(
    "overloaded",
    "The service has no room for this request body at the moment. " +
      "Please try again shortly.",
    { retryAfterMs: MS_PER_SECOND, headers: CLOSES },
  );
}

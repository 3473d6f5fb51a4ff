/**
 * The memory of a worker process for the bodies of requests and for answers, counted in
 * one place from their first byte until nobody needs them any more.
 */
import { HELD_BYTES_MAX } from "../limits.ts";
import { ApiError } from "../openai/error.ts";
import { type MonotonicNow, monotonicNow } from "../process/clock.ts";

/**
 * How long something waits for memory before it is refused: the others are mostly large
 * requests that a server takes within a second.
 */
const WAIT_MS_MAX = 1_000;
/** Another worker may have room, so an edge tries one before it answers 503. */
const RETRY_AFTER_MS = 1_000;
/** An answer is held as bytes, as text, parsed, and encoded for the client. */
const COPIES_OF_ANSWER = 4;
/**
 * Besides its pieces, a request in JSON is held as text, parsed, encoded, joined with
 * its head and as bytes for the server: the first ones until they are collected.
 */
const COPIES_OF_REQUEST = 5;

/** Something that needs more memory than is free. */
interface Waiting {
  readonly owner: HeldBytes;
  readonly bytes: number;
  readonly untilMs: number;
  readonly onRoom: () => void;
  readonly onRefused: (error: ApiError) => void;
}

/** Bounds the bytes that this process holds: a few of the largest would exhaust it. */
export class WorkerMemory {
  readonly #bytesMax: number;
  readonly #now: MonotonicNow;
  #bytes = 0;
  /** Those who wait for room, in the order of their arrival. */
  #waiting: readonly Waiting[] = [];

  /** `bytesMax` is the value of `HELD_BYTES_MAX`. */
  constructor(
    bytesMax: number = HELD_BYTES_MAX,
    now: MonotonicNow = monotonicNow,
  ) {
    this.#bytesMax = bytesMax;
    this.#now = now;
  }

  /** What is held at the moment, with all copies. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether something waits for room. */
  get isFull(): boolean {
    return this.#waiting.length > 0;
  }

  /** The share of one answer. Its copies are counted, too. */
  openAnswer(): HeldBytes {
    return new HeldBytes(this, COPIES_OF_ANSWER);
  }

  /** The share of the pieces of one request, or of its files, which are kept once. */
  openUpload(): HeldBytes {
    return new HeldBytes(this, 1);
  }

  /** The share of what is made of a request in JSON, besides its pieces. */
  openCopies(): HeldBytes {
    return new HeldBytes(this, COPIES_OF_REQUEST);
  }

  /** Holds more bytes if there is room for them, and returns whether there is. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > this.#bytesMax) return false;
    this.#bytes += bytes;
    return true;
  }

  /** Takes the bytes as soon as there is room, or refuses them after a second. */
  wait(waiting: Omit<Waiting, "untilMs">): void {
    const untilMs = this.#now() + WAIT_MS_MAX;
    this.#waiting = [...this.#waiting, { ...waiting, untilMs }];
  }

  /**
   * Holds fewer bytes, which those that wait may get: first who holds most already and
   * is soonest complete. If all grew in turn, none would end.
   */
  give(bytes: number): void {
    this.#bytes -= bytes;
    if (this.#waiting.length === 0) return;
    const order = this.#waiting.toSorted((a, b) =>
      b.owner.bytes - a.owner.bytes
    );
    const served = new Set(order.filter((each) => this.take(each.bytes)));
    this.#waiting = this.#waiting.filter((each) => !served.has(each));
    for (const { onRoom } of served) onRoom();
  }

  /** The owner needs nothing more: ends its waits. */
  forget(owner: HeldBytes): void {
    const own = this.#waiting.filter((each) => each.owner === owner);
    if (own.length === 0) return;
    this.#waiting = this.#waiting.filter((each) => each.owner !== owner);
    for (const { onRefused } of own) onRefused(noRoom());
  }

  /** Refuses those that have waited too long. Must be called a few times a second. */
  tick(): void {
    const nowMs = this.#now();
    for (const waiting of this.#waiting) {
      // What another held, which was just refused, may have been enough for it.
      if (waiting.untilMs > nowMs || !this.#waiting.includes(waiting)) continue;
      waiting.owner.release();
    }
  }
}

/** What one request or answer holds. Must be released when it needs nothing more. */
export class HeldBytes {
  readonly #memory: WorkerMemory;
  readonly #copies: number;
  #bytes = 0;

  /** A share of `memory` in which each byte is held `copies` times. */
  constructor(memory: WorkerMemory, copies: number) {
    this.#memory = memory;
    this.#copies = copies;
  }

  /** Its size, without copies. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Holds this many bytes more. If the process has no room for them, the promise
   * resolves when it has; after a second it releases all and rejects with `overloaded`.
   */
  grow(bytes: number): Promise<void> | undefined {
    const taken = bytes * this.#copies;
    // Who holds nothing yet comes after those that wait.
    const mayTake = this.#bytes > 0 || !this.#memory.isFull;
    if (mayTake && this.#memory.take(taken)) {
      this.#bytes += bytes;
      return;
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#memory.wait({
      owner: this,
      bytes: taken,
      onRoom: () => {
        this.#bytes += bytes;
        resolve();
      },
      onRefused: reject,
    });
    return promise;
  }

  /** Holds this many bytes less. */
  shrink(bytes: number): void {
    this.#bytes -= bytes;
    this.#memory.give(bytes * this.#copies);
  }

  /** Grows or shrinks to this size. */
  resize(bytes: number): Promise<void> | undefined {
    const more = bytes - this.#bytes;
    if (more > 0) return this.grow(more);
    this.shrink(-more);
  }

  /** Needs nothing more: what waits is refused. May be called repeatedly. */
  release(): void {
    this.#memory.forget(this);
    this.shrink(this.#bytes);
  }
}

function noRoom(): ApiError {
  const message = "Too many large requests or answers are in progress. " +
    "Please try again shortly.";
  return new ApiError("overloaded", message, { retryAfterMs: RETRY_AFTER_MS });
}

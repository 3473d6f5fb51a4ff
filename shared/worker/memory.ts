/**
 * The memory of a worker process for the bodies of requests and for answers, counted in
 * one place from their first byte until nobody needs them any more.
 */
import { HELD_BYTES_MAX } from "../limits.ts";
import { ApiError } from "../openai/error.ts";

/** Another worker may have room, so an edge tries one before it answers 503. */
const RETRY_AFTER_MS = 1_000;
/** An answer is held as bytes, as text, parsed, and encoded for the client. */
const COPIES_OF_ANSWER = 4;
/** A request in JSON is held parsed, and as text and as bytes for the model server. */
const COPIES_OF_REQUEST = 3;

/** Bounds the bytes that this process holds: a few of the largest would exhaust it. */
export class WorkerMemory {
  readonly #bytesMax: number;
  #bytes = 0;

  /** `bytesMax` is the value of `HELD_BYTES_MAX`. */
  constructor(bytesMax: number = HELD_BYTES_MAX) {
    this.#bytesMax = bytesMax;
  }

  /** What is held at the moment, with all copies. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The share of one answer. Its copies are counted, too. */
  openAnswer(): HeldBytes {
    return new HeldBytes(this, COPIES_OF_ANSWER);
  }

  /** The share of the files of one request, which are kept once. */
  openUpload(): HeldBytes {
    return new HeldBytes(this, 1);
  }

  /** The share of one request in JSON. Its copies are counted, too. */
  openRequest(): HeldBytes {
    return new HeldBytes(this, COPIES_OF_REQUEST);
  }

  /** Called by a share whose size has changed. Returns whether there is room for it. */
  grow(bytes: number): boolean {
    this.#bytes += bytes;
    return this.#bytes <= this.#bytesMax;
  }
}

/** What one request or answer holds. Must be set to 0 when it needs nothing more. */
export class HeldBytes {
  readonly #memory: WorkerMemory;
  readonly #copies: number;
  #bytes = 0;

  constructor(memory: WorkerMemory, copies: number) {
    this.#memory = memory;
    this.#copies = copies;
  }

  /** Its size, without copies. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Holds this many bytes from now on. If the process has no room for them, releases
   * all and throws `overloaded`.
   */
  set(bytes: number): void {
    const grown = (bytes - this.#bytes) * this.#copies;
    this.#bytes = bytes;
    if (this.#memory.grow(grown) || grown <= 0) return;
    // At once, so that others that grow at the same time are not refused, too.
    this.set(0);
    const message = "Too many large requests or answers are in progress. " +
      "Please try again shortly.";
    throw new ApiError("overloaded", message, { retryAfterMs: RETRY_AFTER_MS });
  }
}

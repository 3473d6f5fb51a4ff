/** Bytes that wait in one array, which costs less than an array for each piece. */

const BYTES_MIN = 1_024;
/** An array that has grown beyond this is not kept once it is empty. */
const IDLE_BYTES_MAX = 64 * 1_024;

/** Pieces that are added at the end and taken from the beginning. */
export class WaitingBytes {
  #bytes: Uint8Array = new Uint8Array(0);
  #length = 0;

  /** How many wait. */
  get length(): number {
    return this.#length;
  }

  /** Adds a copy of a piece. */
  add(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > this.#bytes.length) this.#grow(length);
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** The first ones, at most `bytesMax`: a view until the next change. */
  first(bytesMax: number): Uint8Array {
    return this.#bytes.subarray(0, Math.min(this.#length, bytesMax));
  }

  /** Removes `count` bytes from the beginning. */
  drop(count: number): void {
    this.#bytes.copyWithin(0, count, this.#length);
    this.#length -= count;
    const isIdle = this.#length === 0;
    if (isIdle && this.#bytes.length > IDLE_BYTES_MAX) this.clear();
  }

  /** Removes all. */
  clear(): void {
    this.#bytes = new Uint8Array(0);
    this.#length = 0;
  }

  #grow(length: number): void {
    const grown = new Uint8Array(
      Math.max(BYTES_MIN, length, 2 * this.#bytes.length),
    );
    grown.set(this.first(this.#length));
    this.#bytes = grown;
  }
}

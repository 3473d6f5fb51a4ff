/** Slabs grow up to this size, from {@link SLAB_BYTES_MIN}, so that short answers use little memory. */
const SLAB_BYTES_MAX = 8_192;
const SLAB_BYTES_MIN = 512;

/**
 * Cuts many small arrays from a few large ones: V8 allocates each array outside its
 * heap, at six times the cost. A slab lives as long as any piece of it, so pieces of
 * one must be released together: a slab for each stream.
 */
export class ByteSlab {
  #slab: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #used = 0;

  /** Returns a piece of `bytes` zeros. Large ones are arrays of their own. */
  take(bytes: number): Uint8Array<ArrayBuffer> {
    if (bytes > SLAB_BYTES_MAX / 4) return new Uint8Array(bytes);
    if (this.#used + bytes > this.#slab.length) {
      const doubled = Math.max(SLAB_BYTES_MIN, 2 * this.#slab.length, bytes);
      this.#slab = new Uint8Array(Math.min(doubled, SLAB_BYTES_MAX));
      this.#used = 0;
    }
    return this.#slab.subarray(this.#used, this.#used += bytes);
  }
}

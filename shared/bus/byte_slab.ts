/**
 * Cuts many small arrays from a few large ones: V8 allocates each array outside its
 * heap, at six times the cost. A slab lives as long as any piece of it, so pieces of
 * one must be released together: a slab for each stream.
 */
export class ByteSlab {
  readonly #slabBytesMax: number;
  #slab: Uint8Array<ArrayBuffer> = new Uint8Array(0);
  #used = 0;

  /** The first slab has 512 bytes and each later one twice as many, up to `slabBytesMax`, so that short answers use little memory. */
  constructor(slabBytesMax: number = 8_192) {
    this.#slabBytesMax = slabBytesMax;
  }

  /** Returns a piece of `bytes` zeros. Large ones are arrays of their own. */
  take(bytes: number): Uint8Array<ArrayBuffer> {
    if (bytes > this.#slabBytesMax / 4) return new Uint8Array(bytes);
    if (this.#used + bytes > this.#slab.length) {
      const doubled = Math.max(512, 2 * this.#slab.length, bytes);
      this.#slab = new Uint8Array(Math.min(doubled, this.#slabBytesMax));
      this.#used = 0;
    }
    const start = this.#used;
    this.#used = start + bytes;
    return this.#slab.subarray(start, this.#used);
  }
}

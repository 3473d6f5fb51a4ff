/**
 * Cuts many small arrays from a few large ones, because V8 allocates the memory of
 * each array outside its heap, which costs six times as much as a piece of a slab.
 *
 * A slab lives as long as any piece of it, so one ByteSlab must serve pieces that
 * are released together: one for each stream, never one for all.
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
    if (this.#used + bytes > this.#slab.length) this.#renew(bytes);
    const start = this.#used;
    this.#used = start + bytes;
    return this.#slab.subarray(start, this.#used);
  }

  #renew(bytes: number): void {
    const doubled = Math.max(512, 2 * this.#slab.length, bytes);
    this.#slab = new Uint8Array(Math.min(doubled, this.#slabBytesMax));
    this.#used = 0;
  }
}

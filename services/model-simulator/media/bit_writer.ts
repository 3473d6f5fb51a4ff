/** Writes the bits of a NAL unit of H.264, whose codes do not end at bytes. */
import { Buffer } from "node:buffer";

/** The bits of one unit, after its first bytes. */
export class BitWriter {
  readonly #bytes: number[];
  /** The bits after the last whole byte, and how many there are. */
  #bits = 0;
  #bitCount = 0;

  constructor(head: readonly number[]) {
    this.#bytes = [...head];
  }

  /** One bit. */
  flag(isSet: boolean): void {
    this.fixed(isSet ? 1 : 0, 1);
  }

  /** A number with this many bits, at most 24. */
  fixed(value: number, count: number): void {
    this.#bits = (this.#bits << count) | value;
    this.#bitCount += count;
    while (this.#bitCount >= 8) {
      this.#bitCount -= 8;
      this.#bytes.push((this.#bits >> this.#bitCount) & 0xff);
      this.#bits &= (1 << this.#bitCount) - 1;
    }
  }

  /**
   * A number of any size below 65,535 as Exp-Golomb code `ue(v)` (9.1). The same as
   * `se(v)` for 0.
   */
  unsigned(value: number): void {
    const count = 32 - Math.clz32(value + 1);
    this.fixed(0, count - 1);
    this.fixed(value + 1, count);
  }

  /**
   * The unit with a one and zeros up to a whole byte. No unit has two zero bytes in a
   * row, so none needs bytes that prevent start codes (7.4.1).
   */
  end(): Buffer {
    this.flag(true);
    if (this.#bitCount > 0) this.fixed(0, 8 - this.#bitCount);
    return Buffer.from(this.#bytes);
  }
}

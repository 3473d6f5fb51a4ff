/**
 * The tokens that may come next, with their probabilities, in arrays that are
 * used again for every token: making new ones would be most of the work.
 */
export class Candidates {
  /** How many of the arrays' places are in use. */
  size = 0;
  readonly tokens: Int32Array;
  /** Sums to 1 after {@link normalise}. */
  readonly probabilities: Float64Array;
  /** Room for the sampler. */
  readonly weights: Float64Array;
  readonly #slots: Int32Array;
  readonly #stamps: Int32Array;
  #stamp = 0;

  constructor(vocabularySize: number) {
    this.tokens = new Int32Array(vocabularySize);
    this.probabilities = new Float64Array(vocabularySize);
    this.weights = new Float64Array(vocabularySize);
    this.#slots = new Int32Array(vocabularySize);
    this.#stamps = new Int32Array(vocabularySize);
  }

  clear(): void {
    this.size = 0;
    // The stamps make emptying free. After 2^31 tokens they would repeat.
    if (this.#stamp === 0x7fffffff) {
      this.#stamps.fill(0);
      this.#stamp = 0;
    }
    this.#stamp += 1;
  }

  /** Adds to the probability of a token, which becomes a candidate if it is none. */
  add(token: number, share: number): void {
    let slot = this.slotOf(token);
    if (slot < 0) {
      slot = this.size++;
      this.#stamps[token] = this.#stamp;
      this.#slots[token] = slot;
      this.tokens[slot] = token;
      this.probabilities[slot] = 0;
    }
    this.probabilities[slot] = (this.probabilities[slot] ?? 0) + share;
  }

  /** Multiplies the probability of a token, if it is a candidate. */
  scale(token: number, factor: number): void {
    const slot = this.slotOf(token);
    if (slot < 0) return;
    this.probabilities[slot] = (this.probabilities[slot] ?? 0) * factor;
  }

  /** Where a token is in the arrays; -1 if it is no candidate. */
  slotOf(token: number): number {
    return this.#stamps[token] === this.#stamp ? this.#slots[token] ?? -1 : -1;
  }

  /** Scales all probabilities so that their sum is `total`. */
  normalise(total: number): void {
    let sum = 0;
    for (let slot = 0; slot < this.size; slot++) {
      sum += this.probabilities[slot] ?? 0;
    }
    if (sum === 0) return;
    const factor = total / sum;
    for (let slot = 0; slot < this.size; slot++) {
      this.probabilities[slot] = (this.probabilities[slot] ?? 0) * factor;
    }
  }
}

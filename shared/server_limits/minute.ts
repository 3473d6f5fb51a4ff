/** The requests and tokens of the last minute. */

const SECONDS = 60;
const MS_PER_SECOND = 1_000;
/** The second that has begun counts with the sixty before it. */
const PLACES = SECONDS + 1;

/**
 * Counts by seconds, so that a count is forgotten 60 to 61 seconds later: rather late,
 * as a provider may count from a little later than we do.
 */
export class SlidingMinute {
  readonly #requests = new Float64Array(PLACES);
  readonly #tokens = new Float64Array(PLACES);
  #requestsSum = 0;
  #tokensSum = 0;
  /** The second that has begun. */
  #second = 0;

  /** Moves on to this time. */
  advance(nowMs: number): void {
    const second = Math.floor(nowMs / MS_PER_SECOND);
    const seconds = Math.min(second - this.#second, PLACES);
    for (let each = 1; each <= seconds; each += 1) {
      const place = (second - seconds + each) % PLACES;
      this.#requestsSum -= this.#requests[place] ?? 0;
      this.#tokensSum -= this.#tokens[place] ?? 0;
      this.#requests[place] = 0;
      this.#tokens[place] = 0;
    }
    if (seconds > 0) this.#second = second;
  }

  /** How many requests there were. */
  get requests(): number {
    return this.#requestsSum;
  }

  /** How many tokens there were. */
  get tokens(): number {
    return Math.max(0, this.#tokensSum);
  }

  /** Counts a request that is likely to cost these tokens; returns its second. */
  add(tokens: number): number {
    const place = this.#second % PLACES;
    this.#requests[place] = (this.#requests[place] ?? 0) + 1;
    this.#requestsSum += 1;
    this.#addTokens(place, tokens);
    return this.#second;
  }

  /** What a request of that second was expected to cost and what it has cost. */
  correct(
    second: number,
    { expected, actual }: { expected: number; actual: number },
  ): void {
    const isKept = this.#second - second < PLACES;
    if (isKept) this.#addTokens(second % PLACES, -expected);
    this.#addTokens(this.#second % PLACES, actual);
  }

  /** When the first second with a count is forgotten; `Infinity`: there is none. */
  nextFreeMs(nowMs: number): number {
    for (let ago = SECONDS; ago >= 0; ago -= 1) {
      const second = this.#second - ago;
      const place = (second + PLACES) % PLACES;
      const count = (this.#requests[place] ?? 0) + (this.#tokens[place] ?? 0);
      if (count > 0) return (second + PLACES) * MS_PER_SECOND - nowMs;
    }
    return Infinity;
  }

  #addTokens(place: number, tokens: number): void {
    this.#tokens[place] = (this.#tokens[place] ?? 0) + tokens;
    this.#tokensSum += tokens;
  }
}

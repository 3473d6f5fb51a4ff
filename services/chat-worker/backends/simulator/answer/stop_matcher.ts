/** How much of one stop text the end of the output matches, and where to go on after a mismatch. */
interface Automaton {
  stop: string;
  /** For each length of a match, the longest shorter one: Knuth, Morris and Pratt's failure function. */
  fallbacks: Int32Array;
  matched: number;
}

/**
 * Cuts an output at the first stop text in it, whether or not that comes in
 * several pieces. What could be the beginning of a stop text is held back until
 * it is clear: of `"one sto"` with the stop `"stop"`, `"one "` is released.
 */
export class StopMatcher {
  readonly #automata: readonly Automaton[];
  #held = "";
  #isHit = false;

  constructor(stops: readonly string[]) {
    this.#automata = stops.filter((stop) => stop !== "").map((stop) => ({
      stop,
      fallbacks: fallbacksOf(stop),
      matched: 0,
    }));
  }

  /** A stop text was met: the output is over. */
  get isHit(): boolean {
    return this.#isHit;
  }

  /** Takes a piece of output and returns what is certain not to be part of a stop text. */
  push(piece: string): string {
    if (this.#automata.length === 0) return piece;
    if (this.#isHit) return "";
    const text = this.#held + piece;
    for (let at = this.#held.length; at < text.length; at++) {
      const length = this.#advance(text.charCodeAt(at));
      if (length > 0) {
        this.#isHit = true;
        this.#held = "";
        return text.slice(0, at + 1 - length);
      }
    }
    const held = this.#automata.reduce(
      (most, automaton) => Math.max(most, automaton.matched),
      0,
    );
    this.#held = text.slice(text.length - held);
    return text.slice(0, text.length - held);
  }

  /** The output ends here: returns what was held back. */
  finish(): string {
    const held = this.#held;
    this.#held = "";
    return held;
  }

  /** The length of the stop text that this character completes, the longest if several; else 0. */
  #advance(unit: number): number {
    let completed = 0;
    for (const automaton of this.#automata) {
      const { stop, fallbacks } = automaton;
      let matched = automaton.matched;
      while (matched > 0 && stop.charCodeAt(matched) !== unit) {
        matched = fallbacks[matched] ?? 0;
      }
      if (stop.charCodeAt(matched) === unit) matched += 1;
      automaton.matched = matched;
      if (matched === stop.length) completed = Math.max(completed, matched);
    }
    return completed;
  }
}

function fallbacksOf(stop: string): Int32Array {
  const fallbacks = new Int32Array(stop.length + 1);
  let matched = 0;
  for (let at = 1; at < stop.length; at++) {
    while (matched > 0 && stop.charCodeAt(matched) !== stop.charCodeAt(at)) {
      matched = fallbacks[matched] ?? 0;
    }
    if (stop.charCodeAt(matched) === stop.charCodeAt(at)) matched += 1;
    fallbacks[at + 1] = matched;
  }
  return fallbacks;
}

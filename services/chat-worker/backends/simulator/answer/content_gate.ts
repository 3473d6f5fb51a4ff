import type { Vocabulary } from "../language/vocabulary.ts";
import { TextAssembler } from "../language/text_assembler.ts";
import type { TokenLogprob } from "../sampling/logprobs.ts";
import { StopMatcher } from "./stop_matcher.ts";

/** A token's log probability and where in the text the token stands. */
interface PlacedLogprob {
  logprob: TokenLogprob;
  from: number;
  to: number;
}

/** The last stage before the caller: from tokens to text that may be seen. */
export class ContentGate {
  readonly #assembler: TextAssembler;
  readonly #stops: StopMatcher;
  #waiting: PlacedLogprob[] = [];
  #seenUnits = 0;
  #releasedUnits = 0;

  constructor(vocabulary: Vocabulary, stops: readonly string[]) {
    this.#assembler = new TextAssembler(vocabulary);
    this.#stops = new StopMatcher(stops);
  }

  /** A stop text was met: nothing more comes out. */
  get isStopped(): boolean {
    return this.#stops.isHit;
  }

  /** Takes a token and returns the text that became certain with it, often that of the token. */
  push(token: number, logprob: TokenLogprob | undefined): string {
    const text = this.#assembler.push(token);
    if (logprob !== undefined) {
      const to = this.#seenUnits + text.length;
      this.#waiting.push({ logprob, from: this.#seenUnits, to });
    }
    this.#seenUnits += text.length;
    return this.#released(this.#stops.push(text));
  }

  /** Ends the text: what was held back for a stop text comes out, the bytes of an unfinished character do not. */
  finish(): string {
    return this.#released(this.#stops.finish());
  }

  /** The log probabilities of the tokens that are out by now, each once. */
  takeLogprobs(): TokenLogprob[] {
    // Of the token in which a stop text begins, a part may be out.
    const isOut = ({ from, to }: PlacedLogprob) =>
      this.isStopped ? from < this.#releasedUnits : to <= this.#releasedUnits;
    const end = this.#waiting.findIndex((entry) => !isOut(entry));
    return this.#waiting.splice(0, end < 0 ? this.#waiting.length : end)
      .map(({ logprob }) => logprob);
  }

  #released(text: string): string {
    this.#releasedUnits += text.length;
    return text;
  }
}

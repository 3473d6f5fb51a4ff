/**
 * Whether a choice has ended, as far as its chunks show it. Most servers give the
 * finish reason once, at the end. Some give it in every chunk: then it says nothing,
 * and a stream that breaks off after it is cut, not whole.
 */

/** What is known of the end of one choice. */
export class ChoiceEnding {
  /** The last finish reason that the server gave, in its own word, or empty. */
  word = "";
  /** There was text, a call or the like. */
  hasContent = false;
  #contentChunks = 0;
  /** Content came after a finish reason, so these words prove nothing. */
  #isUnreliable = false;
  /** The last chunk had a finish reason. */
  #isLabelled = false;
  /** The last chunk had a finish reason and no content. */
  #isBare = false;

  /** Takes what a chunk has: content, and a finish reason or an empty word. */
  take({ hasContent, word }: { hasContent: boolean; word: string }): void {
    if (hasContent) {
      this.#isUnreliable ||= this.word !== "";
      this.#contentChunks += 1;
      this.hasContent = true;
    }
    this.#isLabelled = word !== "";
    this.#isBare = this.#isLabelled && !hasContent;
    if (word !== "") this.word = word;
  }

  /** Nothing more will come, even if the connection stays open or breaks. */
  get isSure(): boolean {
    if (!this.#isLabelled || !this.hasContent || this.#isUnreliable) {
      return false;
    }
    // A first chunk with a finish reason may be one of many such chunks.
    return this.#isBare || this.#contentChunks > 1;
  }

  /**
   * Whether the choice is whole when the response ends in order. `isComplete`: the
   * server has said that the response is whole, with `[DONE]`, its usage or one body.
   */
  isWhole({ isComplete }: { isComplete: boolean }): boolean {
    if (isComplete) return this.word !== "" || this.hasContent;
    if (!this.#isLabelled) return this.isSure;
    return this.isSure || this.#isBare || this.#contentChunks <= 1;
  }
}

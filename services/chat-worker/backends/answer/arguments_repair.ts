/**
 * Undoes damage to the arguments of a tool call that can be undone without guessing:
 * servers that send `{}` first, everything so far in each fragment, or the whole once
 * more at the end.
 */
import { isJsonObject, parseJson } from "@gateway/shared/upstream/json";

const EMPTY_OBJECT = "{}";

/** The arguments of one call, fragment by fragment. */
export class ArgumentsRepair {
  /** Repairs so far. */
  count = 0;
  /** What was passed on. */
  #passed = "";
  /** A fragment that may continue what was passed on, or repeat it. */
  #held = "";

  /** Takes the server's next fragment. Returns the part of it to pass on. */
  take(text: string): string {
    if (text === "") return "";
    if (this.#held !== "") return this.#takeAfterHeld(text);
    if (this.#passed === "" ? text === EMPTY_OBJECT : this.#mayRepeat(text)) {
      this.#held = text;
      return "";
    }
    return this.#pass(text);
  }

  /** The call is complete. Returns the part of the held fragment to pass on. */
  end(): string {
    const held = this.#held;
    this.#held = "";
    if (held === "") return "";
    if (this.#passed === "") return this.#pass(held);
    const isContinued = isObject(this.#passed + held);
    if (isContinued || !isObject(held)) return this.#pass(held);
    // Everything was sent again: only what is new is passed on.
    this.count += 1;
    return this.#pass(this.#newIn(held));
  }

  #takeAfterHeld(text: string): string {
    const held = this.#held;
    this.#held = "";
    if (this.#passed === "") {
      // The empty object was no more than a beginning, unless nothing followed it.
      this.count += 1;
      return this.take(text);
    }
    if (text.startsWith(held)) {
      // Each fragment has everything so far.
      this.#held = text;
      return "";
    }
    return this.#pass(held) + this.take(text);
  }

  /** Arguments are an object, so a fragment that begins with all of them is suspect. */
  #mayRepeat(text: string): boolean {
    return text.startsWith(this.#passed) ||
      (text.startsWith("{") && isObject(this.#passed));
  }

  /** The part of a repeated whole that was not passed on. */
  #newIn(whole: string): string {
    return whole.startsWith(this.#passed)
      ? whole.slice(this.#passed.length)
      : "";
  }

  #pass(text: string): string {
    this.#passed += text;
    return text;
  }
}

const isObject = (text: string): boolean => isJsonObject(parseJson(text));

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
  #output = "";
  /** A fragment that may continue what was passed on, or repeat it. */
  #pending = "";

  /** Takes the server's next fragment. Returns the part of it to pass on. */
  take(text: string): string {
    if (text === "") return "";
    if (this.#pending !== "") return this.#takeAfterHeld(text);
    if (this.#output === "" ? text === EMPTY_OBJECT : this.#mayRepeat(text)) {
      this.#pending = text;
      return "";
    }
    return this.#pass(text);
  }

  /** The call is complete. Returns the part of the held fragment to pass on. */
  end(): string {
    const pending = this.#pending;
    this.#pending = "";
    if (pending === "") return "";
    if (this.#output === "") return this.#pass(pending);
    const isContinued = isObject(this.#output + pending);
    if (isContinued || !isObject(pending)) return this.#pass(pending);
    // Everything was sent again: only what is new is passed on.
    this.count += 1;
    return this.#pass(this.#newIn(pending));
  }

  #takeAfterHeld(text: string): string {
    const pending = this.#pending;
    this.#pending = "";
    if (this.#output === "") {
      // The empty object was no more than a beginning, unless nothing followed it.
      this.count += 1;
      return this.take(text);
    }
    if (text.startsWith(pending)) {
      // Each fragment has everything so far.
      this.#pending = text;
      return "";
    }
    return this.#pass(pending) + this.take(text);
  }

  /** Arguments are an object, so a fragment that begins with all of them is suspect. */
  #mayRepeat(text: string): boolean {
    return text.startsWith(this.#output) ||
      (text.startsWith("{") && isObject(this.#output));
  }

  /** The part of a repeated whole that was not passed on. */
  #newIn(whole: string): string {
    return whole.startsWith(this.#output)
      ? whole.slice(this.#output.length)
      : "";
  }

  #pass(text: string): string {
    this.#output += text;
    return text;
  }
}

const isObject = (text: string): boolean => isJsonObject(parseJson(text));

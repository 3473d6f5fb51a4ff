import { likelyTokens, textQuarters } from "./text_tokens.ts";

/** Adds up the tokens of a text that comes in pieces. */
export interface TextMeter {
  add(text: string): void;
  /** Tokens that all of it likely has, rounded up. */
  readonly likelyTokens: number;
  /** Pieces so far, empty ones not counted. */
  readonly pieces: number;
}

/** Text is looked at when so much of it has come: words lie across pieces. */
const SCANNED_CHARS = 1_024;

/** Starts at nothing. However the text is cut, its tokens are the same within one in a hundred. */
export function createTextMeter(): TextMeter {
  let quarters = 0;
  let waiting = "";
  let pieces = 0;
  return {
    add(text) {
      if (text === "") return;
      pieces++;
      waiting += text;
      if (waiting.length < SCANNED_CHARS) return;
      quarters += textQuarters(waiting);
      waiting = "";
    },
    get likelyTokens() {
      return likelyTokens(quarters + textQuarters(waiting));
    },
    get pieces() {
      return pieces;
    },
  };
}

import { utf8Length } from "./utf8.ts";
import {
  BYTE_TOKENS_FROM,
  isPartialToken,
  type Vocabulary,
} from "./vocabulary.ts";

const REPLACEMENT = "\ufffd";

/**
 * Puts the text of a token stream together. A character that is spelt in bytes
 * appears with its last byte, so that no piece of text ends inside a character.
 */
export class TextAssembler {
  readonly #vocabulary: Vocabulary;
  #bytes: number[] = [];

  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
  }

  /** The text that is complete with this token; empty while a character is not. */
  push(token: number): string {
    if (!isPartialToken(token)) {
      const before = this.#bytes.length === 0 ? "" : this.flush();
      return before + (this.#vocabulary.texts[token] ?? "");
    }
    const before = this.#breaksCharacter(token) ? this.flush() : "";
    this.#bytes.push(token - BYTE_TOKENS_FROM);
    const needed = utf8Length(this.#bytes[0] ?? 0);
    if (needed > 1 && this.#bytes.length < needed) return before;
    return before + this.flush();
  }

  /** Ends the text: bytes of an unfinished character become U+FFFD. */
  flush(): string {
    if (this.#bytes.length === 0) return "";
    const bytes = this.#bytes;
    this.#bytes = [];
    return decodeCharacter(bytes) ?? REPLACEMENT;
  }

  /** Whether a character has begun and this byte cannot go on with it. */
  #breaksCharacter(token: number): boolean {
    const byte = token - BYTE_TOKENS_FROM;
    return this.#bytes.length > 0 && (byte & 0xc0) !== 0x80;
  }
}

function decodeCharacter(bytes: readonly number[]): string | undefined {
  const lead = bytes[0] ?? 0;
  const length = utf8Length(lead);
  if (length < 2 || bytes.length !== length) return undefined;
  let code = lead & (0xff >> (length + 1));
  for (let i = 1; i < length; i++) {
    code = (code << 6) | ((bytes[i] ?? 0) & 0x3f);
  }
  return code > 0x10ffff ? undefined : String.fromCodePoint(code);
}

import { CharacterTable } from "./characters.ts";
import { pretokenEnd } from "./pretokens.ts";
import { TextAssembler } from "./text_assembler.ts";
import { eachUtf8Byte } from "./utf8.ts";
import { BYTE_TOKENS_FROM, type Vocabulary } from "./vocabulary.ts";

/** A longer word is not looked up whole: no token is that long. */
const WHOLE_UNITS_MAX = 24;

/** Text to tokens and back, without loss for any well-formed text. */
export interface Tokenizer {
  readonly vocabulary: Vocabulary;
  encode(text: string): number[];
  /**
   * Calls `visit` for the tokens of `text` from unit `from` to the first end of
   * a pretoken at or after unit `to`, and returns where that is. So a long text
   * can be encoded in portions with the same tokens as at once.
   */
  encodePortion(
    text: string,
    from: number,
    to: number,
    visit: (token: number) => void,
  ): number;
  decode(tokens: readonly number[]): string;
}

/**
 * Makes the tokenizer of a vocabulary. A pretoken that is a token is that one;
 * any other is spelt with the longest tokens from its left, and in bytes where
 * none fits: `"gateways 🚀"` is `gate`, `ways`, ` `, and 4 bytes.
 */
export function createTokenizer(
  vocabulary: Vocabulary,
  characters: CharacterTable = new CharacterTable(),
): Tokenizer {
  const spell = createSpeller(vocabulary);
  const encodePortion = (
    text: string,
    from: number,
    to: number,
    visit: (token: number) => void,
  ) => {
    let start = from;
    while (start < to) {
      const end = pretokenEnd(text, start, characters);
      const token = end - start > WHOLE_UNITS_MAX
        ? undefined
        : vocabulary.tokenOf(text.slice(start, end));
      if (token === undefined) spell(text, start, end, visit);
      else visit(token);
      start = end;
    }
    return start;
  };
  return {
    vocabulary,
    encodePortion,
    encode(text) {
      const tokens: number[] = [];
      encodePortion(text, 0, text.length, (token) => tokens.push(token));
      return tokens;
    },
    decode(tokens) {
      const assembler = new TextAssembler(vocabulary);
      let text = "";
      for (const token of tokens) text += assembler.push(token);
      return text + assembler.flush();
    },
  };
}

type Spell = (
  text: string,
  start: number,
  end: number,
  visit: (token: number) => void,
) => void;

/** Longest match over a trie of UTF-16 code units: linear in the text whatever it is. */
function createSpeller(vocabulary: Vocabulary): Spell {
  const children = new Map<number, number>();
  const tokenAt: number[] = [-1];
  vocabulary.texts.forEach((text, token) => {
    if (text === "" || text.length > WHOLE_UNITS_MAX) return;
    tokenAt[insert(children, tokenAt, text)] = token;
  });
  return (text, start, end, visit) => {
    let position = start;
    while (position < end) {
      let node = 0;
      let match = -1;
      let matchEnd = position;
      for (let at = position; at < end; at++) {
        const child = children.get(edge(node, text.charCodeAt(at)));
        if (child === undefined) break;
        node = child;
        const token = tokenAt[node] ?? -1;
        if (token >= 0) {
          match = token;
          matchEnd = at + 1;
        }
      }
      if (match >= 0) visit(match);
      else matchEnd = spellBytes(text, position, visit);
      position = matchEnd;
    }
  };
}

function insert(
  children: Map<number, number>,
  tokenAt: number[],
  text: string,
): number {
  let node = 0;
  for (let i = 0; i < text.length; i++) {
    const key = edge(node, text.charCodeAt(i));
    let child = children.get(key);
    if (child === undefined) {
      child = tokenAt.length;
      tokenAt.push(-1);
      children.set(key, child);
    }
    node = child;
  }
  return node;
}

function edge(node: number, unit: number): number {
  return node * 0x10000 + unit;
}

function spellBytes(
  text: string,
  position: number,
  visit: (token: number) => void,
): number {
  const codePoint = text.codePointAt(position) ?? 0;
  eachUtf8Byte(codePoint, (byte) => visit(BYTE_TOKENS_FROM + byte));
  return position + (codePoint > 0xffff ? 2 : 1);
}

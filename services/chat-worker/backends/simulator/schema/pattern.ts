/**
 * The regular expressions of schemas, as a tree. They come from callers and are
 * never given to the engine of the language, where one line like `(a+)+$` can
 * take minutes: what is checked here is checked in steps that are counted.
 */
export type PatternNode =
  | { type: "set"; ranges: readonly CodeRange[]; isNegated: boolean }
  | { type: "sequence"; items: readonly PatternNode[] }
  | { type: "choice"; options: readonly PatternNode[] }
  | { type: "repeat"; item: PatternNode; min: number; max: number }
  | { type: "start" }
  | { type: "end" };

/** First and last code point of a range. */
export type CodeRange = readonly [number, number];

/** Nested deeper, a pattern is not understood. */
const DEPTH_MAX = 32;
const PATTERN_CHARS_MAX = 2000;

const DIGITS: readonly CodeRange[] = [[0x30, 0x39]];
const WORDS: readonly CodeRange[] = [
  [0x61, 0x7a],
  [0x41, 0x5a],
  [0x30, 0x39],
  [0x5f, 0x5f],
];
const SPACES: readonly CodeRange[] = [[0x20, 0x20], [0x09, 0x0d], [
  0xa0,
  0xa0,
]];
const LINE_ENDS: readonly CodeRange[] = [[0x0a, 0x0a], [0x0d, 0x0d]];
const CLASSES = new Map([["d", DIGITS], ["w", WORDS], ["s", SPACES]]);
const CONTROLS = new Map([
  ["n", 0x0a],
  ["r", 0x0d],
  ["t", 0x09],
  ["f", 0x0c],
  ["v", 0x0b],
  ["0", 0],
]);

/**
 * Parses a pattern of ECMAScript without its rarest parts. Undefined for what is
 * malformed and for lookaround, back references, `\b` and `\p{…}`.
 */
export function parsePattern(source: string): PatternNode | undefined {
  if (source.length > PATTERN_CHARS_MAX) return undefined;
  const parser = new Parser([...source]);
  const node = parser.choice(0);
  return node !== undefined && parser.isAtEnd ? node : undefined;
}

/** A parser that gives up by answering undefined. */
class Parser {
  readonly #source: readonly string[];
  #at = 0;

  constructor(source: readonly string[]) {
    this.#source = source;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#source.length;
  }

  choice(depth: number): PatternNode | undefined {
    if (depth > DEPTH_MAX) return undefined;
    const options: PatternNode[] = [];
    do {
      const option = this.#sequence(depth);
      if (option === undefined) return undefined;
      options.push(option);
    } while (this.#take("|"));
    return options.length === 1 ? options[0] : { type: "choice", options };
  }

  #sequence(depth: number): PatternNode | undefined {
    const items: PatternNode[] = [];
    while (!this.isAtEnd && this.#peek() !== "|" && this.#peek() !== ")") {
      const atom = this.#atom(depth);
      if (atom === undefined) return undefined;
      const repeated = this.#repeated(atom);
      if (repeated === undefined) return undefined;
      items.push(repeated);
    }
    return { type: "sequence", items };
  }

  #atom(depth: number): PatternNode | undefined {
    const character = this.#next();
    switch (character) {
      case "^":
        return { type: "start" };
      case "$":
        return { type: "end" };
      case ".":
        return { type: "set", ranges: LINE_ENDS, isNegated: true };
      case "(":
        return this.#group(depth);
      case "[":
        return this.#set();
      case "\\":
        return this.#escape();
      case "*":
      case "+":
      case "?":
        return undefined;
      default:
        return literal(character);
    }
  }

  #group(depth: number): PatternNode | undefined {
    if (this.#take("?") && !this.#take(":") && !this.#takeName()) {
      return undefined;
    }
    const node = this.choice(depth + 1);
    return this.#take(")") ? node : undefined;
  }

  /** `<name>` of a named group; `<=` and `<!` are lookbehind. */
  #takeName(): boolean {
    if (!this.#take("<")) return false;
    let name = "";
    while (!this.isAtEnd && this.#peek() !== ">") name += this.#next();
    return /^\w+$/.test(name) && this.#take(">");
  }

  #escape(): PatternNode | undefined {
    const character = this.#next();
    const ranges = CLASSES.get(character.toLowerCase());
    if (ranges !== undefined) {
      return {
        type: "set",
        ranges,
        isNegated: character !== character.toLowerCase(),
      };
    }
    const code = this.#escapedCode(character);
    return code === undefined
      ? undefined
      : { type: "set", ranges: [[code, code]], isNegated: false };
  }

  #escapedCode(character: string): number | undefined {
    const control = CONTROLS.get(character);
    if (control !== undefined) return control;
    if (character === "x") return this.#hex(2);
    if (character === "u") {
      if (!this.#take("{")) return this.#hex(4);
      let digits = "";
      while (!this.isAtEnd && this.#peek() !== "}") digits += this.#next();
      return this.#take("}") ? codeOfHex(digits) : undefined;
    }
    // Letters and digits mean something that is not understood here: \b, \1, \p.
    return /^[\w]?$/.test(character) ? undefined : character.codePointAt(0);
  }

  #hex(length: number): number | undefined {
    let digits = "";
    for (let i = 0; i < length; i++) digits += this.#next();
    return digits.length === length ? codeOfHex(digits) : undefined;
  }

  #set(): PatternNode | undefined {
    const isNegated = this.#take("^");
    const ranges: CodeRange[] = [];
    while (!this.isAtEnd && this.#peek() !== "]") {
      const part = this.#setPart();
      if (part === undefined) return undefined;
      ranges.push(...part);
    }
    return this.#take("]") ? { type: "set", ranges, isNegated } : undefined;
  }

  #setPart(): readonly CodeRange[] | undefined {
    const first = this.#setItem();
    if (first === undefined || first.length !== 1) return first;
    if (this.#peek() !== "-" || this.#source[this.#at + 1] === "]") {
      return first;
    }
    this.#next();
    const last = this.#setItem();
    const from = first[0]?.[0];
    const to = last?.length === 1 ? last[0]?.[1] : undefined;
    if (from === undefined || to === undefined || to < from) return undefined;
    return [[from, to]];
  }

  #setItem(): readonly CodeRange[] | undefined {
    const character = this.#next();
    if (character !== "\\") {
      const code = character.codePointAt(0);
      return code === undefined ? undefined : [[code, code]];
    }
    if (this.#take("b")) return [[8, 8]];
    const node = this.#escape();
    if (node?.type !== "set") return undefined;
    return node.isNegated ? complementOf(node.ranges) : node.ranges;
  }

  #repeated(item: PatternNode): PatternNode | undefined {
    const bounds = this.#bounds();
    if (bounds === undefined) return undefined;
    const [min, max] = bounds;
    if (min === 1 && max === 1) return item;
    // Lazy or greedy matters to what is captured, not to what matches.
    this.#take("?");
    return { type: "repeat", item, min, max };
  }

  #bounds(): [number, number] | undefined {
    if (this.#take("*")) return [0, Infinity];
    if (this.#take("+")) return [1, Infinity];
    if (this.#take("?")) return [0, 1];
    if (!this.#take("{")) return [1, 1];
    let text = "";
    while (!this.isAtEnd && this.#peek() !== "}") text += this.#next();
    const parts = /^(\d{1,6})(,?)(\d{0,6})$/.exec(text);
    if (!this.#take("}") || !parts) return undefined;
    const min = Number(parts[1]);
    if (parts[2] === "") return [min, min];
    const max = parts[3] === "" ? Infinity : Number(parts[3]);
    return max < min ? undefined : [min, max];
  }

  #peek(): string | undefined {
    return this.#source[this.#at];
  }

  #next(): string {
    return this.#source[this.#at++] ?? "";
  }

  #take(character: string): boolean {
    if (this.#peek() !== character) return false;
    this.#at += 1;
    return true;
  }
}

function literal(character: string): PatternNode | undefined {
  const code = character.codePointAt(0);
  return code === undefined
    ? undefined
    : { type: "set", ranges: [[code, code]], isNegated: false };
}

function codeOfHex(digits: string): number | undefined {
  if (!/^[0-9a-fA-F]{1,6}$/.test(digits)) return undefined;
  const code = Number.parseInt(digits, 16);
  return code > 0x10ffff ? undefined : code;
}

function complementOf(ranges: readonly CodeRange[]): CodeRange[] {
  const sorted = [...ranges].sort((one, other) => one[0] - other[0]);
  const result: CodeRange[] = [];
  let from = 0;
  for (const [first, last] of sorted) {
    if (first > from) result.push([from, first - 1]);
    from = Math.max(from, last + 1);
  }
  return [...result, [from, 0x10ffff]];
}

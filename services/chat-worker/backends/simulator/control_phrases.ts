/** What a request asks of the simulator itself, beside its answer. Absent: as the knobs say. */
export interface Controls {
  /** The text of the answer has exactly this many tokens. */
  exactTokens?: number;
  /** The request fails at once, as if the model server had answered this status. */
  errorStatus?: number;
  /** The answer breaks off with an error after this many tokens of each choice. */
  failAfterTokens?: number;
  /** The answer stops without an error or an end after this many tokens of each choice. */
  stallAfterTokens?: number;
  firstTokenMs?: number;
  tokensPerSecond?: number;
  /** 0..1 */
  jitter?: number;
  /** The answer ends without its `usage` event. */
  isUsageMissing?: boolean;
}

/** The outcome of {@link parseControlPhrases}. */
export interface ParsedControls {
  controls: Controls;
  /** What stood in brackets and is none of the phrases. */
  unknown: readonly string[];
}

/** One phrase: how it is written, and what it sets from its number. */
interface Phrase {
  example: string;
  pattern: RegExp;
  set: (amount: number) => Controls;
}

const BRACKETS = /\[simulator:([^\]\n]{0,200})\]/gi;

/** Every phrase. Numbers are whole, of at most 7 digits, unless the example has a fraction. */
const PHRASES: readonly Phrase[] = [
  {
    example: "200 tokens",
    pattern: /^(\d{1,7}) tokens?$/,
    set: (amount) => ({ exactTokens: amount }),
  },
  {
    example: "error 500",
    pattern: /^error ([45]\d\d)$/,
    set: (amount) => ({ errorStatus: amount }),
  },
  {
    example: "fail after 5 tokens",
    pattern: /^fail after (\d{1,7}) tokens?$/,
    set: (amount) => ({ failAfterTokens: amount }),
  },
  {
    example: "stall after 5 tokens",
    pattern: /^stall after (\d{1,7}) tokens?$/,
    set: (amount) => ({ stallAfterTokens: amount }),
  },
  {
    example: "first token 2000 ms",
    pattern: /^first token (\d{1,7}) ms$/,
    set: (amount) => ({ firstTokenMs: amount }),
  },
  {
    example: "12.5 tokens per second",
    pattern: /^(\d{1,7}(?:\.\d{1,3})?) tokens? per second$/,
    set: (amount) => ({ tokensPerSecond: amount }),
  },
  {
    example: "jitter 20 percent",
    pattern: /^jitter (100|\d{1,2}) percent$/,
    set: (amount) => ({ jitter: amount / 100 }),
  },
  {
    example: "usage missing",
    pattern: /^usage missing$/,
    set: () => ({ isUsageMissing: true }),
  },
];

/** One way to write each phrase, for error messages and documentation. */
export const PHRASE_EXAMPLES: readonly string[] = PHRASES.map((phrase) =>
  phrase.example
);

/**
 * Reads the phrases in a user message that steer the simulator for this request:
 * `[simulator: 200 tokens]`, or several with commas between,
 * `[simulator: first token 50 ms, 20 tokens per second]`. Case does not matter.
 * They make load and fault tests possible through the whole gateway, with any
 * SDK, and without a configuration per test.
 */
export function parseControlPhrases(message: string): ParsedControls {
  let controls: Controls = {};
  const unknown: string[] = [];
  for (const [, inside] of message.matchAll(BRACKETS)) {
    for (const part of (inside ?? "").split(",")) {
      const text = part.trim().replace(/\s+/g, " ").toLowerCase();
      const parsed = parsePhrase(text);
      if (parsed) controls = { ...controls, ...parsed };
      else unknown.push(text);
    }
  }
  return { controls, unknown };
}

/** The message as the model should understand it. */
export function stripControlPhrases(message: string): string {
  return message.includes("[") ? message.replace(BRACKETS, "") : message;
}

function parsePhrase(text: string): Controls | undefined {
  for (const phrase of PHRASES) {
    const found = phrase.pattern.exec(text);
    if (found) return phrase.set(Number(found[1] ?? 0));
  }
  return undefined;
}

/**
 * Instructions to the simulator itself (length, pace and faults), given as phrases in
 * the last user message. They work through the whole gateway and with any SDK. Pure.
 */
import { RequestError } from "./request.ts";

/** When tokens are sent. */
export interface Pace {
  readonly firstTokenMs: number;
  /** For each choice. 0: no limit. */
  readonly tokensPerSecond: number;
}

/** How an answer fails after some tokens of each choice. */
export type Break = "fail" | "cut" | "stall" | "garbage";

/** A missing member means the default behaviour. */
export interface Controls {
  /** The text of the answer has exactly this many tokens. */
  readonly exactTokens?: number;
  /** The answer is an HTTP error of this status. */
  readonly errorStatus?: number;
  readonly break?: { readonly type: Break; readonly afterTokens: number };
  readonly pace?: Partial<Pace>;
  readonly isUsageMissing?: boolean;
}

type Phrase = readonly [
  example: string,
  form: RegExp,
  set: (number: number) => Controls,
];

const breakPhrase = (type: Break): Phrase => [
  `${type} after 5 tokens`,
  new RegExp(`^${type} after (\\d{1,7}) tokens?$`),
  (afterTokens) => ({ break: { type, afterTokens } }),
];

const PHRASES: readonly Phrase[] = [
  ["200 tokens", /^(\d{1,6}) tokens?$/, (exactTokens) => ({ exactTokens })],
  ["error 500", /^error ([45]\d\d)$/, (errorStatus) => ({ errorStatus })],
  breakPhrase("fail"),
  breakPhrase("cut"),
  breakPhrase("stall"),
  breakPhrase("garbage"),
  [
    "first token 2000 ms",
    /^first token (\d{1,7}) ms$/,
    (firstTokenMs) => ({ pace: { firstTokenMs } }),
  ],
  [
    "12.5 tokens per second",
    /^(\d{1,7}(?:\.\d{1,3})?) tokens? per second$/,
    (tokensPerSecond) => ({ pace: { tokensPerSecond } }),
  ],
  ["usage missing", /^usage missing$/, () => ({ isUsageMissing: true })],
];

/**
 * Reads phrases such as `[simulator: 200 tokens]`, several of them separated by
 * commas. Throws a {@link RequestError} for an unknown phrase: a test whose fault is
 * misspelled would test nothing.
 */
export function readControls(text: string): Controls {
  let controls: Controls = {};
  for (const phrase of phrasesIn(text).phrases) {
    const { pace, ...others } = controlOf(phrase);
    controls = { ...controls, ...others };
    if (pace) controls = { ...controls, pace: { ...controls.pace, ...pace } };
  }
  return controls;
}

/** The text without its phrases. */
export function withoutControls(text: string): string {
  return phrasesIn(text).rest.trim();
}

/** Brackets with more than 200 characters, and those after the first 16, are ordinary text. */
const BRACKET = /\[simulator:([^\]]{0,200})\]/;
const BRACKETS_MAX = 16;

function phrasesIn(text: string): { phrases: string[]; rest: string } {
  const phrases: string[] = [];
  let rest = text;
  for (let count = 0; count < BRACKETS_MAX; count++) {
    const found = BRACKET.exec(rest);
    if (found === null) break;
    phrases.push(...(found[1] ?? "").split(","));
    rest = rest.slice(0, found.index) +
      rest.slice(found.index + found[0].length);
  }
  return { phrases, rest };
}

function controlOf(phrase: string): Controls {
  const words = phrase.trim().replace(/\s+/g, " ").toLowerCase();
  for (const [, form, set] of PHRASES) {
    const found = form.exec(words);
    if (found !== null) return set(Number(found[1] ?? 0));
  }
  const known = PHRASES.map(([example]) => example).join("; ");
  throw new RequestError(
    `Unknown simulator phrase '${words}'. Known phrases: ${known}.`,
    { param: "messages" },
  );
}

/**
 * Instructions to the simulator itself (length, pace and faults), given as phrases in
 * the last user message. They work through the whole gateway and with any SDK. Pure.
 */
import { HttpError } from "./errors.ts";

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

const BREAKS: readonly Break[] = ["fail", "cut", "stall", "garbage"];
const PHRASES: readonly Phrase[] = [
  ["200 tokens", /^(\d{1,6}) tokens?$/, (exactTokens) => ({ exactTokens })],
  ["error 500", /^error ([45]\d\d)$/, (errorStatus) => ({ errorStatus })],
  ...BREAKS.map((type): Phrase => [
    `${type} after 5 tokens`,
    new RegExp(`^${type} after (\\d{1,7}) tokens?$`),
    (afterTokens) => ({ break: { type, afterTokens } }),
  ]),
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

/** Longer brackets are ordinary text. */
const BRACKET = /\[simulator:([^[\]]{0,200})\]/g;
const BRACKETS_MAX = 16;

/**
 * Reads phrases such as `[simulator: 200 tokens]`, several of them separated by
 * commas. Throws an {@link HttpError} for an unknown phrase: a test whose fault is
 * misspelled would test nothing.
 */
export function readControls(text: string): Controls {
  const phrases = text.matchAll(BRACKET).take(BRACKETS_MAX)
    .flatMap(([, inner = ""]) => inner.split(","));
  let controls: Controls = {};
  for (const phrase of phrases) {
    const { pace, ...others } = controlOf(phrase);
    controls = { ...controls, ...others };
    if (pace) controls = { ...controls, pace: { ...controls.pace, ...pace } };
  }
  return controls;
}

/** The text without its phrases. */
export function withoutControls(text: string): string {
  return text.replace(BRACKET, "").trim();
}

function controlOf(phrase: string): Controls {
  const words = phrase.trim().replace(/\s+/g, " ").toLowerCase();
  for (const [, form, set] of PHRASES) {
    const found = form.exec(words);
    if (found !== null) return set(Number(found[1] ?? 0));
  }
  const known = PHRASES.map(([example]) => example).join("; ");
  throw new HttpError(
    `Unknown simulator phrase '${words}'. Known phrases: ${known}.`,
    { param: "messages" },
  );
}

/**
 * What a request asks of the simulator itself: length, pace and faults, by phrases
 * in its last user message. They work through the whole gateway and with any SDK.
 * Pure.
 */
import { RequestError } from "./request.ts";

/** How an answer goes wrong after some tokens of each choice. */
export type Break = "fail" | "cut" | "stall" | "garbage";

/** Absent: as usual. */
export interface Controls {
  /** The text of the answer has exactly this many tokens. */
  readonly exactTokens?: number;
  /** The answer is an HTTP error of this status. */
  readonly errorStatus?: number;
  /** The body of that error is FastAPI's: `{"detail": …}`. */
  readonly isDetail?: boolean;
  readonly break?: { readonly type: Break; readonly afterTokens: number };
  readonly firstTokenMs?: number;
  readonly tokensPerSecond?: number;
  readonly isUsageMissing?: boolean;
  /** The stream ends without `[DONE]`. */
  readonly isDoneMissing?: boolean;
  /** The answer never ends. */
  readonly isEndless?: boolean;
}

const OPENING = "[simulator:";
/** Text between brackets that is longer is no phrase. */
const PHRASE_CHARS_MAX = 200;
const PHRASES_MAX = 16;

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
  [
    "detail 422",
    /^detail ([45]\d\d)$/,
    (errorStatus) => ({ errorStatus, isDetail: true }),
  ],
  breakPhrase("fail"),
  breakPhrase("cut"),
  breakPhrase("stall"),
  breakPhrase("garbage"),
  [
    "first token 2000 ms",
    /^first token (\d{1,7}) ms$/,
    (firstTokenMs) => ({ firstTokenMs }),
  ],
  [
    "12.5 tokens per second",
    /^(\d{1,7}(?:\.\d{1,3})?) tokens? per second$/,
    (tokensPerSecond) => ({ tokensPerSecond }),
  ],
  ["usage missing", /^usage missing$/, () => ({ isUsageMissing: true })],
  ["done missing", /^done missing$/, () => ({ isDoneMissing: true })],
  ["endless", /^endless$/, () => ({ isEndless: true })],
];

/**
 * Reads `[simulator: 200 tokens]`, also several with commas between. Throws a {@link RequestError} for a phrase that is none, because a test
 * of a fault with a slip of the pen would test nothing.
 */
export function readControls(text: string): Controls {
  let controls: Controls = {};
  for (const phrase of phrasesIn(text).phrases) {
    controls = { ...controls, ...controlOf(phrase) };
  }
  return controls;
}

/** The text without its phrases. */
export function withoutControls(text: string): string {
  return phrasesIn(text).rest.trim();
}

function phrasesIn(text: string): { phrases: string[]; rest: string } {
  const phrases: string[] = [];
  let rest = "";
  let from = 0;
  while (phrases.length < PHRASES_MAX) {
    const start = text.indexOf(OPENING, from);
    if (start < 0) break;
    const inside = start + OPENING.length;
    const end = text.slice(inside, inside + PHRASE_CHARS_MAX + 1).indexOf("]");
    const next = end < 0 ? inside : inside + end + 1;
    rest += text.slice(from, end < 0 ? next : start);
    if (end >= 0) {
      phrases.push(...text.slice(inside, inside + end).split(","));
    }
    from = next;
  }
  return { phrases, rest: rest + text.slice(from) };
}

function controlOf(phrase: string): Controls {
  const words = phrase.trim().replace(/\s+/g, " ").toLowerCase();
  for (const [, form, set] of PHRASES) {
    const found = form.exec(words);
    if (found !== null) return set(Number(found[1] ?? 0));
  }
  const known = PHRASES.map(([example]) => example).join("; ");
  throw new RequestError(
    `Unknown simulator phrase '${words}'. Known are: ${known}.`,
    { param: "messages" },
  );
}

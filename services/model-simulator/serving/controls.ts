/**
 * Instructions to the simulator, as phrases in the prompt: they pass through the whole
 * gateway with any SDK. Pure.
 */
import { ApiError, fieldError } from "@gateway/shared/openai/error";

export interface Pace {
  readonly firstTokenMs: number;
  /** For each choice. 0: no limit. */
  readonly tokensPerSecond: number;
}

const BREAKS = ["fail", "cut", "stall", "garbage"] as const;

/** A missing member means the default behaviour. */
export interface Controls extends Partial<Pace> {
  /** The text of the answer has exactly this many tokens. */
  readonly exactTokens?: number;
  /** The answer is an HTTP error of this status. */
  readonly errorStatus?: number;
  readonly break?: {
    readonly type: typeof BREAKS[number];
    readonly afterTokens: number;
  };
  readonly isUsageMissing?: boolean;
  /** How long the job of a video takes. */
  readonly videoSeconds?: number;
  readonly isVideoFailing?: boolean;
}

type Phrase = readonly [
  /** How documents show it. The number in it may be any of its form. */
  example: string,
  set: (number: number) => Controls,
  numberForm?: RegExp,
];

const PHRASES: readonly Phrase[] = [
  ["200 tokens", (exactTokens) => ({ exactTokens }), /\d{1,6}/],
  ["error 500", (errorStatus) => ({ errorStatus }), /[45]\d\d/],
  ...BREAKS.map((type): Phrase => [
    `${type} after 5 tokens`,
    (afterTokens) => ({ break: { type, afterTokens } }),
  ]),
  ["first token 2000 ms", (firstTokenMs) => ({ firstTokenMs })],
  [
    "12.5 tokens per second",
    (tokensPerSecond) => ({ tokensPerSecond }),
    /\d{1,7}(?:\.\d{1,3})?/,
  ],
  ["video takes 10 s", (videoSeconds) => ({ videoSeconds })],
  ["video fails", () => ({ isVideoFailing: true })],
  ["usage missing", () => ({ isUsageMissing: true })],
];

/** The form of each phrase, and what it sets. */
const FORMS = PHRASES.map(([example, set, { source } = /\d{1,7}/]) => {
  const form = example.replace(/[\d.]+/, `(${source})`);
  return [new RegExp(`^${form.replace("tokens", "tokens?")}$`), set] as const;
});

/** Longer brackets are ordinary text. */
const BRACKET = /\[simulator:([^[\]]{0,200})\]/g;
const BRACKETS_MAX = 16;

/**
 * Reads phrases such as `[simulator: 200 tokens]`. Throws for an unknown one: a
 * misspelled fault would test nothing.
 */
export function readControls(text: string, param = "messages"): Controls {
  return text.matchAll(BRACKET).take(BRACKETS_MAX)
    .flatMap(([, inner = ""]) => inner.split(","))
    .reduce((all, phrase) => ({ ...all, ...controlOf(phrase, param) }), {});
}

export function withoutControls(text: string): string {
  return text.replace(BRACKET, "").trim();
}

/** A text, cut or repeated to the requested length. */
export function lengthen(
  tokens: readonly string[],
  { exactTokens = tokens.length }: Controls,
): string[] {
  const times = Math.ceil(exactTokens / tokens.length);
  return Array(times).fill(tokens).flat().slice(0, exactTokens);
}

function controlOf(phrase: string, param: string): Controls {
  const words = phrase.trim().replace(/\s+/g, " ").toLowerCase();
  for (const [form, set] of FORMS) {
    const found = form.exec(words);
    if (found !== null) return set(Number(found[1]));
  }
  const known = PHRASES.map(([example]) => example).join("; ");
  throw fieldError(
    "invalid_value",
    param,
    `Unknown simulator phrase '${words}'. Known phrases: ${known}.`,
  );
}

const TYPES: { [status: number]: string } = {
  403: "permission_error",
  429: "rate_limit_error",
  529: "overloaded_error",
};
const CODES: { [status: number]: string } = {
  401: "invalid_api_key",
  404: "model_not_found",
  429: "rate_limit_exceeded",
};

/** The error of this status as model servers send it. */
export function requestedError(status: number): ApiError {
  const type = status < 500 ? "invalid_request_error" : "server_error";
  return new ApiError("invalid_request", "Failed on request.", {
    status,
    type: TYPES[status] ?? type,
    wireCode: CODES[status] ?? null,
    retryAfterMs: [429, 503, 529].includes(status) ? 1_000 : undefined,
  });
}

/**
 * Instructions to the simulator, as phrases in the prompt: they pass through the whole
 * gateway with any SDK. Pure.
 */
import { ApiError, fieldError } from "@gateway/shared/openai/error";

/** How fast the simulator answers. */
export interface Pace {
  /** How long it takes from the request to the first token. */
  readonly firstTokenMs: number;
  /** The pace of each choice. 0: no limit. */
  readonly tokensPerSecond: number;
}

const BREAKS = ["fail", "cut", "stall", "garbage"] as const;

/** What phrases ask of one answer. A missing member means the default behaviour. */
export interface Controls extends Partial<Pace> {
  /** The text of the answer has exactly this many tokens. */
  readonly exactTokens?: number;
  /** The answer is an HTTP error of this status. */
  readonly errorStatus?: number;
  /** The answer breaks off in this way, before its next token. */
  readonly break?: {
    readonly type: typeof BREAKS[number];
    readonly afterTokens: number;
  };
  readonly isUsageMissing?: boolean;
  /** How long the job of a video takes. */
  readonly videoSeconds?: number;
  readonly isVideoFailing?: boolean;
}

interface Phrase {
  /** How documents show it. The number in it may be any of its form. */
  readonly example: string;
  readonly controls: (number: number) => Controls;
  /** Default: a whole number of up to seven digits. */
  readonly numberForm?: RegExp;
}

const PHRASES: readonly Phrase[] = [
  {
    example: "200 tokens",
    controls: (exactTokens) => ({ exactTokens }),
    numberForm: /\d{1,6}/,
  },
  {
    example: "error 500",
    controls: (errorStatus) => ({ errorStatus }),
    numberForm: /[45]\d\d/,
  },
  ...BREAKS.map((type): Phrase => ({
    example: `${type} after 5 tokens`,
    controls: (afterTokens) => ({ break: { type, afterTokens } }),
  })),
  {
    example: "first token 2000 ms",
    controls: (firstTokenMs) => ({ firstTokenMs }),
  },
  {
    example: "12.5 tokens per second",
    controls: (tokensPerSecond) => ({ tokensPerSecond }),
    numberForm: /\d{1,7}(?:\.\d{1,3})?/,
  },
  {
    example: "video takes 10 s",
    controls: (videoSeconds) => ({ videoSeconds }),
  },
  { example: "video fails", controls: () => ({ isVideoFailing: true }) },
  { example: "usage missing", controls: () => ({ isUsageMissing: true }) },
];

/** The form of each phrase, and the controls that it means. */
const FORMS = PHRASES.map(({ example, controls, numberForm = /\d{1,7}/ }) => {
  const form = example.replace(/[\d.]+/, `(${numberForm.source})`)
    .replace("tokens", "tokens?");
  return { form: new RegExp(`^${form}$`), controls };
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

/** The text without its phrases for the simulator. */
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
  for (const { form, controls } of FORMS) {
    const found = form.exec(words);
    if (found !== null) return controls(Number(found[1]));
  }
  const examples = PHRASES.map(({ example }) => example).join("; ");
  throw fieldError(
    "invalid_value",
    param,
    `Unknown simulator phrase '${words}'. Known phrases: ${examples}.`,
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

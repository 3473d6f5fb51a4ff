import type { SimulatorKnobs } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import { textOf } from "./answer/conversation.ts";
import {
  type Controls,
  parseControlPhrases,
  PHRASE_EXAMPLES,
} from "./control_phrases.ts";
import type { Random } from "./sampling/random.ts";

/** Status of the failures that `errorRate` makes. */
const ERROR_STATUS = 500;
/** A failure by `midStreamErrorRate` comes after 1 to this many tokens. */
const FAIL_TOKENS_MAX = 16;
const RETRY_AFTER_MS = 1000;

/**
 * What goes wrong with a request: by chance, as the knobs have it, and as the
 * phrases of the last user message say. Throws `invalid_value` for a phrase that
 * is none, because a fault test with a slip of the pen would test nothing.
 */
export function readControls(
  request: ChatRequest,
  knobs: SimulatorKnobs,
  random: Random,
): Controls {
  const isHit = (rate: number) => rate > 0 && random() < rate;
  return {
    ...(isHit(knobs.errorRate) ? { errorStatus: ERROR_STATUS } : {}),
    ...(isHit(knobs.midStreamErrorRate)
      ? { failAfterTokens: 1 + Math.floor(random() * FAIL_TOKENS_MAX) }
      : {}),
    ...(knobs.controlPhrases === false ? {} : phrasesOf(request)),
  };
}

/** The error of a request that fails before its first token, by the status the model server would have sent. */
export function failureOf(status: number): ApiError {
  const code = codeOf(status);
  const message = `The model server answered with status ${status}.`;
  if (code === "invalid_request") {
    return new ApiError(code, message, { status });
  }
  return status === 429 || status === 503
    ? new ApiError(code, message, { retryAfterMs: RETRY_AFTER_MS })
    : new ApiError(code, message);
}

/** The error of an answer that breaks off. */
export function midStreamFailure(): ApiError {
  return new ApiError(
    "upstream_error",
    "The model server failed before the answer was complete.",
  );
}

function phrasesOf(request: ChatRequest): Controls {
  const user = request.messages.findLast(({ role }) => role === "user");
  if (user === undefined) return {};
  const { controls, unknown } = parseControlPhrases(textOf(user));
  if (unknown.length === 0) return controls;
  throw new ApiError(
    "invalid_value",
    `Unknown simulator phrase '${unknown[0]}'. Known are: ${
      PHRASE_EXAMPLES.join("; ")
    }.`,
    { param: "messages" },
  );
}

function codeOf(status: number): ErrorCode {
  switch (status) {
    // A refusal of the gateway's own credential is not the caller's fault.
    case 401:
    case 403:
      return "upstream_error";
    case 408:
    case 504:
      return "upstream_timeout";
    case 429:
      return "upstream_rate_limited";
    case 503:
      return "service_unavailable";
    default:
      return status < 500 ? "invalid_request" : "upstream_error";
  }
}

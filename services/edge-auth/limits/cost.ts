/** The estimated cost of a request before it runs, and its actual cost afterwards. */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { promptTokens } from "@gateway/shared/openai/tokens";
import type { RunOutcome } from "../dispatch/outcome.ts";

/**
 * How many tokens a request may cost, estimated before it runs. The difference is
 * settled when the actual usage is known.
 */
export interface TokenEstimate {
  promptTokens: number;
  /** The tokens to reserve: the prompt, and the answer of each of the `n` choices. */
  totalTokens: number;
}

/** Reserved for an answer without `max_tokens`, and for thinking without `thinking_budget`. */
const OUTPUT_TOKENS_DEFAULT = 1_024;

/** Estimates a validated request. Example: one message "hello", `max_tokens` 10, `n` 2: 6 + 20 = 26. */
export function estimateTokens(
  request: ChatRequest,
  outputTokensMax = Infinity,
): TokenEstimate {
  const outputTokens = Math.min(
    request.max_tokens ?? OUTPUT_TOKENS_DEFAULT + thinkingTokens(request),
    outputTokensMax,
  );
  const prompt = promptTokens(request);
  const totalTokens = prompt + outputTokens * request.n;
  return { promptTokens: prompt, totalTokens };
}

/** Thinking counts as output, and is added where `max_tokens` does not cover both. */
function thinkingTokens(request: ChatRequest): number {
  if (request.enable_thinking !== true) return 0;
  return request.thinking_budget ?? OUTPUT_TOKENS_DEFAULT;
}

/** The cost to settle. Null: unknown, so the reservation stays charged. */
export interface Cost {
  promptTokens: number | null;
  completionTokens: number | null;
  /** Only `failed` counts as an error; a client that disconnects does not. */
  kind: RunOutcome["kind"];
}

/** The fields of a run's outcome that determine its cost. */
export type ChargedRun = Pick<
  RunOutcome,
  | "kind"
  | "usage"
  | "completionTokens"
  | "isFinal"
  | "dispatchMs"
  | "cancelReason"
>;

/**
 * The rule for what is charged. An unknown cost is never free: otherwise a backend
 * that reports no usage, or a client that always disconnects early, would have no limit.
 *
 * | the request | charge |
 * | --- | --- |
 * | never ran: no worker accepted it | nothing |
 * | the backend reported its usage | that usage |
 * | tokens were received: complete, failed, cut, or its worker lost | the estimated prompt, and these tokens |
 * | complete without usage and without a token | the reservation |
 * | failed before its first token | nothing |
 * | stopped before its first token, as its worker reported | the estimated prompt |
 * | stopped, and its worker did not report the tokens | the reservation |
 */
export function costOf(run: ChargedRun, estimate: TokenEstimate): Cost {
  const { kind, usage, completionTokens, cancelReason, isFinal } = run;
  const cost = (prompt: number | null, completion: number | null): Cost => ({
    promptTokens: prompt,
    completionTokens: completion,
    kind,
  });
  if (run.dispatchMs === null) return cost(0, 0);
  // A prompt has at least one token, so a usage of 0 means that it was not counted.
  if (usage !== null && usage.prompt_tokens + usage.completion_tokens > 0) {
    return cost(usage.prompt_tokens, usage.completion_tokens);
  }
  if (completionTokens === 0) {
    if (kind === "complete") return cost(null, null);
    if (cancelReason === null) return cost(0, 0);
    if (!isFinal) return cost(null, null);
  }
  return cost(estimate.promptTokens, completionTokens);
}

/** What a request may cost before it runs, and what it has cost when it is over. */
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { promptTokensMost } from "@gateway/shared/tokens/prompt_tokens";
import type { RunOutcome } from "../dispatch/run.ts";

/**
 * How many tokens a request may cost, estimated before it runs. The estimate errs
 * high; the difference is given back when the real usage is known.
 */
export interface TokenEstimate {
  promptTokens: number;
  /** Over all `n` choices. */
  completionTokens: number;
  /** What to reserve. */
  totalTokens: number;
}

/** Reserved for an answer without `max_tokens`, and for thinking without a budget. */
const OUTPUT_TOKENS_DEFAULT = 1_024;

/** Estimates a validated request. Example: one message "hello", `max_tokens` 10, `n` 2: 6 + 20 = 26. */
export function estimateTokens(
  request: ChatRequest,
  outputTokensMax = Infinity,
): TokenEstimate {
  const promptTokens = promptTokensMost(request);
  const outputTokens = Math.min(
    request.max_tokens ?? OUTPUT_TOKENS_DEFAULT + thinkingTokens(request),
    outputTokensMax,
  );
  const completionTokens = outputTokens * request.n;
  const totalTokens = promptTokens + completionTokens;
  return { promptTokens, completionTokens, totalTokens };
}

/** Thinking counts as output, and comes on top where no bound covers both. */
function thinkingTokens(request: ChatRequest): number {
  if (request.enable_thinking !== true) return 0;
  return request.thinking_budget ?? OUTPUT_TOKENS_DEFAULT;
}

/** What is settled. Null: not known, so what was reserved stays charged. */
export interface Cost {
  promptTokens: number | null;
  completionTokens: number | null;
  /** `failed` counts as an error; a client that left is `cancelled`, not an error. */
  kind: RunOutcome["kind"];
}

/** The part of the record of a run that decides what it costs. */
export type ChargedRun = Pick<
  RunOutcome,
  | "kind"
  | "usage"
  | "completionTokens"
  | "isHeard"
  | "dispatchMs"
  | "cancelReason"
>;

/**
 * The one rule of what is charged. An unknown cost is never free: otherwise a backend
 * that does not count, or a client that always leaves early, would have no limit.
 *
 * | the request | charge |
 * | --- | --- |
 * | never ran: no worker took it, or its client left before | nothing |
 * | the backend counted | what it counted |
 * | tokens were seen: complete, failed, cut, or its worker lost | the prompt by its estimate, and the tokens |
 * | complete without a count and without a token | what was reserved |
 * | failed before its first token | nothing |
 * | stopped before its first token, and the worker said so | the prompt by its estimate |
 * | stopped, and the worker did not say how far it was | what was reserved |
 */
export function costOf(run: ChargedRun, estimate: TokenEstimate): Cost {
  const { kind, usage, completionTokens, cancelReason, isHeard } = run;
  const cost = (prompt: number | null, completion: number | null): Cost => ({
    promptTokens: prompt,
    completionTokens: completion,
    kind,
  });
  if (run.dispatchMs === null) return cost(0, 0);
  // A prompt has at least one token, so a count of nothing is none.
  if (usage !== null && usage.prompt_tokens + usage.completion_tokens > 0) {
    return cost(usage.prompt_tokens, usage.completion_tokens);
  }
  if (completionTokens === 0) {
    if (kind === "complete") return cost(null, null);
    if (cancelReason === null) return cost(0, 0);
    if (!isHeard) return cost(null, null);
  }
  return cost(estimate.promptTokens, completionTokens);
}

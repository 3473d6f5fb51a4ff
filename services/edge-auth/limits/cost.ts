/**
 * The estimated cost of a request before it runs, and its actual cost afterwards.
 */
import {
  USAGE_UNITS,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import { TOKEN_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import { promptTokens } from "@gateway/shared/openai/tokens";
import { z } from "zod";
import type { RunOutcome } from "../dispatch/outcome.ts";

/** What requests without tokens cost: images, characters, or seconds. */
export const unitsSchema = z.object({
  unit: z.enum(USAGE_UNITS),
  count: z.number(),
});
/** An amount of one unit: `{ unit: "images", count: 2 }`. */
export type Units = z.output<typeof unitsSchema>;

/** What a request may cost, estimated before it runs. */
export interface Estimate {
  promptTokens: number;
  /** The tokens to reserve: the prompt, and the answer of each of the `n` choices. */
  totalTokens: number;
  /** The largest counts of a model server that are believed. */
  bounds: { promptTokensMax: number; completionTokensMax: number };
  /**
   * What the request costs instead of tokens, or null. A count of 0: not known before
   * it has run.
   */
  units: Units | null;
  /** Units for which budgets are held, where the count is not known. */
  heldUnits?: number;
  /** Answers for which the client has set no bound; absent: none. */
  openAnswers?: {
    count: number;
    /** The longest that the model gives. */
    tokensMax: number;
  };
}

/** What the list of models says of the lengths of a model; absent: not known. */
export interface ModelLengths {
  /** The longest answer. */
  output_tokens?: number | undefined;
  /** The longest prompt together with its answer. */
  context_tokens?: number | undefined;
}

/**
 * Reserved for an answer without `max_tokens`, and for thinking without
 * `thinking_budget`.
 */
export const OUTPUT_TOKENS_DEFAULT = 1_024;

/**
 * Estimates a validated request. Example: one message "hello", `max_tokens` 10, `n` 2:
 * 6 + 20 = 26.
 */
export function estimateTokens(
  request: ChatRequest,
  { output_tokens = Infinity, context_tokens }: ModelLengths = {},
): Estimate {
  const { thinking_budget = OUTPUT_TOKENS_DEFAULT, max_tokens, n } = request;
  // Thinking counts as output, and is added where `max_tokens` does not cover both.
  const isThinking = request.enable_thinking === true;
  const thinking = isThinking ? thinking_budget : 0;
  const answerTokens = max_tokens ?? OUTPUT_TOKENS_DEFAULT + thinking;
  const prompt = promptTokens(request);
  const contextTokens = context_tokens ?? TOKEN_LIMITS.contextTokensMax;
  // A server may count thinking beside `max_tokens`.
  const longest = max_tokens === undefined
    ? contextTokens
    : Math.min(max_tokens + thinking, contextTokens);
  return {
    promptTokens: prompt,
    totalTokens: prompt + Math.min(answerTokens, output_tokens) * n,
    bounds: {
      promptTokensMax: Math.max(prompt, contextTokens),
      completionTokensMax: longest * n,
    },
    units: null,
    ...max_tokens === undefined && {
      openAnswers: { count: n, tokensMax: output_tokens },
    },
  };
}

/** What is known of the size of a request that generates tokens. */
export interface GenerationSize {
  promptTokens: number;
  /** How many answers are asked for. */
  choices: number;
  /** The longest answer; null: the client has set no bound. */
  outputTokensMax: number | null;
}

/** Estimates a request of which only the size is known. */
export function estimateGeneration(
  { promptTokens, choices, outputTokensMax }: GenerationSize,
  { output_tokens = Infinity, context_tokens }: ModelLengths,
): Estimate {
  const contextTokens = context_tokens ?? TOKEN_LIMITS.contextTokensMax;
  const answerTokens = outputTokensMax ?? OUTPUT_TOKENS_DEFAULT;
  const longest = Math.min(outputTokensMax ?? contextTokens, contextTokens);
  return {
    promptTokens,
    totalTokens: promptTokens + Math.min(answerTokens, output_tokens) * choices,
    bounds: {
      promptTokensMax: Math.max(promptTokens, contextTokens),
      completionTokensMax: longest * choices,
    },
    units: null,
    ...outputTokensMax === null && {
      openAnswers: { count: choices, tokensMax: output_tokens },
    },
  };
}

/** The estimate of a request that costs nothing. */
export function costsNothing(): Estimate {
  return {
    promptTokens: 0,
    totalTokens: 0,
    bounds: { promptTokensMax: 0, completionTokensMax: 0 },
    units: null,
  };
}

/** The estimate of a request that costs units; a count of 0: not known yet. */
export function costsOnly(unit: UsageUnit, count = 0): Estimate {
  return {
    promptTokens: 0,
    totalTokens: 0,
    bounds: { promptTokensMax: 0, completionTokensMax: 0 },
    units: { unit, count },
  };
}

/** What a request is charged: the same in limits, usage and metrics. */
export interface Cost {
  promptTokens: number;
  completionTokens: number;
  /** The prompt tokens that a cache had. Absent: not known. */
  cachedTokens?: number;
  /** The prompt tokens that were written to a cache. */
  cacheWriteTokens?: number;
  /**
   * The units that were made. Null: settled when the video has ended, until then the
   * reservation stays charged. Absent: none.
   */
  unitsMade?: number | null;
  /** The cost in billionths of the currency. Absent: the request has no price. */
  nanos?: number;
  /** Whether the request has no price, although others have one. */
  isUnpriced?: boolean;
  /** Only `failed` counts as an error; a client that disconnects does not. */
  kind: RunOutcome["kind"];
}

/**
 * The one rule for what is charged. Charged is the largest of
 *
 * - what the model server has stated so far,
 * - what was passed on, estimated from the text,
 * - where a server works as a whole (images, transcriptions), what was started there
 *   and is not known to have stopped.
 *
 * It makes no difference when the client leaves. The worker finds the largest of the
 * three, and its last frame says so (`completionTokens`). What is not known is never
 * free: otherwise a backend that reports no usage would have no limit.
 *
 * | the request | charge |
 * | --- | --- |
 * | never ran: no worker accepted it | nothing |
 * | the backend reported its usage | that usage, as far as it is possible |
 * | something was received: complete, failed, cut, or its worker lost | the estimated
 * prompt, and the largest of the three |
 * | complete without usage and without a token | the reservation |
 * | failed before its first token | nothing |
 * | stopped before its first token, as its worker reported | the estimated prompt |
 * | stopped, and its worker did not report the tokens | the reservation |
 *
 * For requests without tokens, the same is true of what was made: images, characters
 * spoken, or seconds. The request that begins a video keeps its reservation, which
 * is settled when the video has ended. A client that leaves before it learns the id of
 * its video is charged all of it, because the model server may make it.
 */
export function costOf(run: RunOutcome | null, estimate: Estimate): Cost {
  const { kind, dispatchMs } = run ?? NEVER_RAN;
  if (run === null || dispatchMs === null) {
    const nothing = { promptTokens: 0, completionTokens: 0, kind };
    return estimate.units === null ? nothing : { ...nothing, unitsMade: 0 };
  }
  return estimate.units === null
    ? costInTokens(run, estimate)
    : costInUnits(run, estimate.units);
}

const NEVER_RAN = { kind: "cancelled", dispatchMs: null } as const;

/** Whether nobody can say what a run has made, so that it may be all that was asked. */
function isUnknown(run: RunOutcome): boolean {
  const { kind, completionTokens, cancelReason, isFinal } = run;
  if (completionTokens > 0) return false;
  return kind === "complete" || (cancelReason !== null && !isFinal);
}

function costInTokens(run: RunOutcome, estimate: Estimate): Cost {
  const { kind, usage, completionTokens, cancelReason, answerBytes } = run;
  // A token has at least one byte, so an answer that ignores `max_tokens` still counts.
  const completionTokensMax = Math.max(
    estimate.bounds.completionTokensMax,
    answerBytes,
  );
  const bounds = { ...estimate.bounds, completionTokensMax };
  // A prompt has at least one token, so a usage of 0 means that it was not counted.
  if (usage !== null && usage.prompt_tokens + usage.completion_tokens > 0) {
    return { ...tokensOf(usage, bounds), kind };
  }
  const { promptTokens, totalTokens } = estimate;
  if (isUnknown(run)) {
    return { promptTokens, completionTokens: totalTokens - promptTokens, kind };
  }
  const hasBegun = completionTokens > 0 || cancelReason !== null;
  return {
    promptTokens: hasBegun ? promptTokens : 0,
    completionTokens: Math.min(completionTokens, completionTokensMax),
    kind,
  };
}

/** The tokens that a stated usage is charged, as far as it is possible. */
export function tokensOf(
  usage: Usage,
  { promptTokensMax, completionTokensMax }: Estimate["bounds"],
): Omit<Cost, "kind"> {
  const promptTokens = Math.min(usage.prompt_tokens, promptTokensMax);
  return {
    promptTokens,
    completionTokens: Math.min(usage.completion_tokens, completionTokensMax),
    ...cachedIn(usage, promptTokens),
  };
}

/** What a server says of its cache, as far as the prompt has this many tokens. */
function cachedIn(
  { prompt_tokens_details: details }: Usage,
  promptTokens: number,
): Pick<Cost, "cachedTokens" | "cacheWriteTokens"> {
  if (details === undefined) return {};
  const { cached_tokens, cache_write_tokens = 0 } = details;
  const cachedTokens = Math.min(cached_tokens, promptTokens);
  const cacheWriteTokens = Math.min(
    cache_write_tokens,
    promptTokens - cachedTokens,
  );
  return { cachedTokens, cacheWriteTokens };
}

function costInUnits(run: RunOutcome, { unit, count }: Units): Cost {
  const { kind, completionTokens } = run;
  const none = { promptTokens: 0, completionTokens: 0, kind };
  if (unit === "videoSeconds" && kind === "complete") {
    return { ...none, unitsMade: null };
  }
  // Closing the connection does not stop a video that the model server has started.
  const runsOn = unit === "videoSeconds" && kind === "cancelled";
  const isWhole = isUnknown(run) || runsOn;
  return { ...none, unitsMade: isWhole ? count : completionTokens };
}

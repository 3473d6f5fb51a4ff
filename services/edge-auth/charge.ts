/** What a request costs, by how it ended. */
import type { Outcome } from "./admitted.ts";
import type { Settlement } from "./gate.ts";
import type { TokenEstimate } from "./token_estimate.ts";

/**
 * - `nothing`: all of the reservation goes back.
 * - `usage`: what the backend counted.
 * - `produced`: the prompt by its estimate, and the tokens that were seen.
 * - `reservation`: nobody knows, so what was reserved stays.
 */
export type Charge = "nothing" | "usage" | "produced" | "reservation";

/**
 * The one rule of what is charged. Not to know is never free: a backend that does
 * not count, or a client that always leaves early, would have no limit at all.
 *
 * | the request | charge |
 * | --- | --- |
 * | never ran: no worker took it, or its client left before | nothing |
 * | the backend counted | usage |
 * | tokens were seen: complete, failed, cut, or its worker lost | produced |
 * | complete without a count and without a token | reservation |
 * | failed before its first token | nothing |
 * | stopped before its first token, and the worker said so | produced: the prompt |
 * | stopped, and the worker did not say how far it was | reservation |
 */
export function chargeOf(end: Settlement): Charge {
  if (!end.hasRun) return "nothing";
  if (isCounted(end)) return "usage";
  if (end.completionTokens > 0) return "produced";
  if (end.kind === "complete") return "reservation";
  if (!end.isStopped) return "nothing";
  return end.isHeard ? "produced" : "reservation";
}

/** A prompt has at least one token, so a count of nothing is none. */
function isCounted({ usage }: Settlement): boolean {
  return usage !== null && usage.prompt_tokens + usage.completion_tokens > 0;
}

const OUTCOME_OF_KIND = {
  complete: "completed",
  failed: "failed",
  cancelled: "cancelled",
} as const;

/** The charge in numbers, as admission settles it. */
export function outcomeOf(
  { kind, usage, completionTokens }: Settlement,
  charge: Charge,
  { promptTokens }: TokenEstimate,
): Outcome {
  const outcome = OUTCOME_OF_KIND[kind];
  switch (charge) {
    case "nothing":
      return { promptTokens: 0, completionTokens: 0, outcome };
    case "usage":
      return {
        promptTokens: usage?.prompt_tokens ?? null,
        completionTokens: usage?.completion_tokens ?? null,
        outcome,
      };
    case "produced":
      return { promptTokens, completionTokens, outcome };
    case "reservation":
      return { promptTokens: null, completionTokens: null, outcome };
  }
}

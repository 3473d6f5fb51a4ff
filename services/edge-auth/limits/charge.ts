/** What a request costs, by how it ended. */
import type { RunOutcome } from "../dispatch/run.ts";
import type { TokenEstimate } from "./token_estimate.ts";

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
 * - `nothing`: all of the reservation goes back.
 * - `usage`: what the backend counted.
 * - `produced`: the prompt by its estimate, and the tokens that were seen.
 * - `reservation`: nobody knows, so what was reserved stays.
 */
export type Charge = "nothing" | "usage" | "produced" | "reservation";

/** What is settled. Null: not known, so what was reserved stays charged. */
export interface Cost {
  promptTokens: number | null;
  completionTokens: number | null;
  /** `failed` counts as an error; a client that left is `cancelled`, not an error. */
  kind: RunOutcome["kind"];
}

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
export function chargeOf(run: ChargedRun): Charge {
  if (run.dispatchMs === null) return "nothing";
  if (isCounted(run)) return "usage";
  if (run.completionTokens > 0) return "produced";
  if (run.kind === "complete") return "reservation";
  if (run.cancelReason === null) return "nothing";
  return run.isHeard ? "produced" : "reservation";
}

/** A prompt has at least one token, so a count of nothing is none. */
function isCounted({ usage }: ChargedRun): boolean {
  return usage !== null && usage.prompt_tokens + usage.completion_tokens > 0;
}

/** The charge in numbers. */
export function costOf(
  { kind, usage, completionTokens }: ChargedRun,
  charge: Charge,
  { promptTokens }: TokenEstimate,
): Cost {
  switch (charge) {
    case "nothing":
      return { promptTokens: 0, completionTokens: 0, kind };
    case "usage":
      return {
        promptTokens: usage?.prompt_tokens ?? null,
        completionTokens: usage?.completion_tokens ?? null,
        kind,
      };
    case "produced":
      return { promptTokens, completionTokens, kind };
    case "reservation":
      return { promptTokens: null, completionTokens: null, kind };
  }
}

/** Charges the request of a kept answer whose edge is gone, and ends its record. */
import { type Frame, FrameType } from "@gateway/shared/bus/stream/frame";
import { parseEnd, parseErr } from "@gateway/shared/bus/stream/payloads";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import type { ApiError } from "@gateway/shared/openai/error";
import { RunOutcome } from "../dispatch/outcome.ts";
import { costOf } from "../limits/cost.ts";
import type { Leases } from "../limits/leases.ts";
import { type Charge, priced } from "../limits/rate.ts";
import type { Closing, KeptRecord } from "./records.ts";

/** The outcome of a run as the last frame of its answer states it. */
export function outcomeOf(
  { type, payload, tokens }: Pick<Frame, "type" | "payload" | "tokens">,
): RunOutcome {
  const end = type === FrameType.END ? parseEnd(payload) : null;
  const failure = type === FrameType.ERR ? parseErr(payload) : null;
  const { usage = null, backend } = end ?? failure ?? {};
  return {
    ...new RunOutcome(),
    kind: end === null ? "failed" : "complete",
    usage,
    backend,
    completionTokens: usage?.completion_tokens ?? tokens,
    isFinal: true,
    error: failure?.error ?? null,
    dispatchMs: 0,
  };
}

/** The outcome of a run whose worker is gone as well. */
export function lostOutcome(tokens: number, error: ApiError): RunOutcome {
  return {
    ...new RunOutcome(),
    kind: "failed",
    completionTokens: tokens,
    error,
    // Without any token, nobody can say whether it has run.
    dispatchMs: tokens > 0 ? 0 : null,
  };
}

/** How the record of an answer ends whose run has ended so. */
export function closingOf(
  { kind, usage, completionTokens, error }: RunOutcome,
  { keepMs, bytes, hasData }: {
    keepMs: number;
    bytes: number;
    hasData: boolean;
  },
): Closing {
  const isComplete = kind === "complete";
  // A run that has failed before its first token is not remembered.
  const isForgotten = !isComplete && !hasData;
  return {
    state: isComplete ? "complete" : "failed",
    end: {
      usage: usage === null ? null : { ...usage },
      completionTokens,
      error: isComplete || error === null ? null : {
        code: error.code,
        message: error.message,
        status: error.status,
        type: error.type,
        wireCode: error.wireCode,
        retryAfterMs: error.retryAfterMs,
      },
    },
    bytes,
    keepMs: isForgotten ? KEPT_LIMITS.failureMs : keepMs,
    isForgotten,
  };
}

/**
 * Charges a request by the terms of its record, once, whoever tries: only while it has
 * its lease, or the mark of a lost request. Returns what it was charged; null: nothing,
 * or somebody else has charged it.
 */
export async function settleFor(
  { terms }: KeptRecord,
  outcome: RunOutcome,
  leases: Pick<Leases, "settle">,
): Promise<Charge | null> {
  if (terms === null) return null;
  const { reservation, estimate } = terms;
  const { rate = null } = reservation;
  const cost = priced(
    costOf(outcome, { ...estimate, units: null }),
    null,
    rate,
  );
  const isSettled = await leases.settle({ reservation, cost, isShared: true });
  return isSettled ? { cost, rate } : null;
}

import {
  lateKey,
  limiterDay,
  usageDay,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerLimitsKey,
  ownerUsageKey,
  type Principal,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { Admitted, Outcome } from "./admitted.ts";

/** One call of the settle script, see `settle.lua.ts`. */
export interface Settlement {
  leaseId: string;
  keys: readonly string[];
  mode: "held" | "late" | "release";
  /** The arguments behind the mode. */
  terms: readonly string[];
}

/** The settlement of a request that has ended. Both counts are whole numbers or null. */
export function settlementOf(
  admitted: Admitted,
  outcome: Outcome,
): Settlement {
  const { principal, terms } = admitted;
  return {
    leaseId: admitted.id,
    keys: settleKeys(principal, admitted.id, terms.atMs),
    mode: admitted.isLost ? "late" : "held",
    terms: [
      String(terms.flags),
      String(terms.keyTokensPerMinute),
      String(terms.ownerTokensPerMinute),
      String(correction(admitted, outcome)),
      String(limiterDay(terms.atMs)),
      usageHour(terms.atMs),
      "1",
      String(outcome.promptTokens ?? 0),
      String(outcome.completionTokens ?? 0),
      outcome.outcome === "failed" ? "1" : "0",
    ],
  };
}

/** Undoes an admission of which nobody knows whether it took place. */
export function releaseOf(
  principal: Principal,
  leaseId: string,
  reservedTokens: number,
): Settlement {
  return {
    leaseId,
    keys: settleKeys(principal, leaseId, 0),
    mode: "release",
    terms: [
      String(reservedTokens),
      recordKey(principal),
      ownerLimitsKey(principal.ownerId),
    ],
  };
}

/** The keys that admissions and settlements of a principal work on. */
export function limiterKeys(principal: Principal): readonly string[] {
  return [
    limiterKey(principal),
    leaseKey(principal),
    ownerLimiterKey(principal.ownerId),
    ownerLeaseKey(principal.ownerId),
  ];
}

function settleKeys(
  principal: Principal,
  leaseId: string,
  atMs: number,
): readonly string[] {
  const day = usageDay(atMs);
  return [
    ...limiterKeys(principal),
    usageKey(principal, day),
    lateKey(principal.ownerId, leaseId),
    ownerUsageKey(principal.ownerId, day),
  ];
}

/** Tokens used less tokens charged so far. What was reserved at a server that lost its data is not charged. */
function correction(admitted: Admitted, outcome: Outcome): number {
  const { promptTokens, completionTokens } = outcome;
  const charged = admitted.isLost ? 0 : admitted.reservedTokens;
  if (promptTokens === null || completionTokens === null) {
    return admitted.reservedTokens - charged;
  }
  return promptTokens + completionTokens - charged;
}

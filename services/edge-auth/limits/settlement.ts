/** What the settlement of a request changes in Redis. */
import {
  limiterDay,
  usageDay,
  usageHour,
} from "@gateway/shared/keys/limiter_state";
import {
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerUsageKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { Cost } from "./cost.ts";
import type { Admitted } from "./limiter.ts";

/** One call of the settle script, see `scripts.ts`. */
export interface Settlement {
  readonly leaseId: string;
  readonly keys: readonly string[];
  /** The arguments from the third on. */
  readonly terms: readonly string[];
  /** The lease may not exist, in which case there is nothing to do. */
  readonly isRelease: boolean;
}

/**
 * The settlement of a request that has ended. Both token counts are integers or null.
 * Without a cost, it undoes an admission that may or may not have happened, including
 * the request it counted.
 */
export function settlementOf(
  { id, principal, atMs, reservedTokens }: Pick<
    Admitted,
    "id" | "principal" | "atMs" | "reservedTokens"
  >,
  cost: Cost | null,
): Settlement {
  const day = usageDay(atMs);
  const { ownerId } = principal;
  const { promptTokens = 0, completionTokens = 0, kind } = cost ?? {};
  const used = promptTokens === null || completionTokens === null
    ? reservedTokens
    : promptTokens + completionTokens;
  return {
    leaseId: id,
    keys: [
      limiterKey(principal),
      leaseKey(principal),
      ownerLimiterKey(ownerId),
      ownerLeaseKey(ownerId),
      usageKey(principal, day),
      ownerUsageKey(ownerId, day),
    ],
    terms: [
      String(used - reservedTokens),
      cost === null ? "1" : "0",
      cost === null ? "" : String(limiterDay(atMs)),
      cost === null ? "" : usageHour(atMs),
      String(promptTokens ?? 0),
      String(completionTokens ?? 0),
      kind === "failed" ? "1" : "0",
    ],
    isRelease: cost === null,
  };
}

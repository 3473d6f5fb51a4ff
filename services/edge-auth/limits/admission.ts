/** Admits chat requests: returns a lease or throws the HTTP error of the refusal. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Principal } from "@gateway/shared/keys/record";
import type { Log } from "@gateway/shared/process/log";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunOutcome } from "../dispatch/run.ts";
import { chargeOf, costOf } from "./charge.ts";
import type { Admitted, Limiter } from "./limiter.ts";
import { type HeaderFields, rateLimitHeaders } from "./rate_limit_headers.ts";
import { type Refusal, refusalError } from "./refusal.ts";
import { estimateTokens } from "./token_estimate.ts";

/** Held by an admitted request until it is settled or released. */
export interface ChatLease {
  /**
   * Resolves when the slot was freed, or the first attempt to free it failed.
   * Null when no concurrency limit applies, so nobody waits for the slot.
   */
  readonly slotFreed: Promise<void> | null;
  /** The `x-ratelimit-*` and `RateLimit` headers of the answer. */
  readonly headers: HeaderFields;
  /** Charges what the run has cost. Does not block or throw. */
  settle(outcome: RunOutcome): void;
  /** Gives everything back; no worker ran the request. */
  release(): void;
}

export interface Admission {
  /**
   * Throws the refusal of a key that was refused for a limit, as long as Redis said
   * that it will be and says so again: its body need not be read. Of other keys
   * Redis is not asked.
   */
  checkRefused(principal: Principal): Promise<void>;
  /**
   * Admits a chat request or throws the `ApiError` of its refusal. The tokens it
   * may cost are reserved until the lease is settled.
   */
  admitChat(
    principal: Principal,
    request: ChatRequest,
    requestId: string,
  ): Promise<ChatLease>;
}

/** What admission said to one chat request, for metrics. */
export interface Decision {
  /** `unavailable`: Redis could not answer. `failed`: a fault of ours, such as a corrupt record. */
  result: Admitted | Refusal | "unavailable" | "failed";
  durationMs: number;
}

export interface AdmissionOptions {
  limiter: Pick<Limiter, "admit" | "look" | "settle">;
  catalog: Catalog;
  now: MonotonicNow;
  random: () => number;
  log: Log;
  /** Told of a principal whose key does not exist any more. */
  onUnknown: (principal: Principal) => void;
  /** Must not throw. */
  onDecision?: (decision: Decision) => void;
}

const REFUSED_KEYS_MAX = 10_000;

export function createAdmission(options: AdmissionOptions): Admission {
  const { limiter, catalog, now, random, log, onUnknown, onDecision } = options;

  /** Keys that were refused for a limit, and until when that may hold. */
  const refusedUntilMs = new Map<string, number>();

  const decide = async <T extends Admitted | Refusal | null>(
    ask: () => Promise<T>,
  ): Promise<T> => {
    const startedAtMs = now();
    let result: Decision["result"] | null = "failed";
    try {
      const decision = await ask();
      result = decision;
      return decision;
    } catch (error) {
      if (error instanceof ApiError) result = "unavailable";
      throw error;
    } finally {
      const durationMs = now() - startedAtMs;
      if (result !== null) onDecision?.({ result, durationMs });
    }
  };

  const refuse = (principal: Principal, refusal: Refusal): ApiError => {
    if (refusal.reason === "unknown") onUnknown(principal);
    if (refusal.reason === "limited") {
      refusedUntilMs.delete(principal.keyId);
      refusedUntilMs.set(principal.keyId, now() + refusal.waitMs);
      const [oldest] = refusedUntilMs.keys();
      if (refusedUntilMs.size > REFUSED_KEYS_MAX && oldest !== undefined) {
        refusedUntilMs.delete(oldest);
      }
    }
    return refusalError(refusal, random);
  };

  return {
    async checkRefused(principal) {
      const untilMs = refusedUntilMs.get(principal.keyId);
      if (untilMs === undefined) return;
      if (now() < untilMs) {
        const refusal = await decide(() => limiter.look(principal, "chat"));
        if (refusal !== null) throw refuse(principal, refusal);
      }
      refusedUntilMs.delete(principal.keyId);
    },
    async admitChat(principal, request, requestId) {
      const model = catalog.get(request.model);
      const estimate = estimateTokens(request, model?.outputTokensMax);
      const admitted = await decide(() =>
        limiter.admit(principal, {
          scope: "chat",
          model: request.model,
          wantTokens: estimate.totalTokens,
          requestId,
        })
      );
      if (!admitted.isAdmitted) throw refuse(principal, admitted);
      const freed = admitted.isSlotLimited
        ? Promise.withResolvers<void>()
        : null;
      return {
        slotFreed: freed?.promise ?? null,
        headers: rateLimitHeaders(admitted.rates),
        settle(outcome) {
          const charge = chargeOf(outcome);
          const isComplete = outcome.kind === "complete";
          if (charge === "reservation" || (isComplete && charge !== "usage")) {
            log.warn("usage_missing", {
              requestId: publicRequestId(requestId),
              charge,
            });
          }
          const cost = costOf(outcome, charge, estimate);
          limiter.settle(admitted, cost, freed?.resolve);
        },
        release() {
          limiter.settle(admitted, {
            promptTokens: 0,
            completionTokens: 0,
            kind: "cancelled",
          }, freed?.resolve);
        },
      };
    },
  };
}

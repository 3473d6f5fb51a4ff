/** Admits chat requests: returns a lease or throws the HTTP error of the refusal. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunOutcome } from "../dispatch/run.ts";
import { costOf, estimateTokens } from "./cost.ts";
import type { Admitted, Limiter } from "./limiter.ts";
import { type HeaderFields, rateLimitHeaders } from "./rate_limit_headers.ts";
import { type Refusal, refusalError } from "./refusal.ts";

/** Held by an admitted request until it is settled or released. */
export interface ChatLease {
  /**
   * Resolves when the slot was freed, or the first attempt to free it failed.
   * Null when no concurrency limit applies, so nobody waits for the slot.
   */
  readonly slotFreed: Promise<void> | null;
  /** The `x-ratelimit-*` headers of the answer. */
  readonly headers: HeaderFields;
  /** Charges what the run has cost. Does not block or throw. */
  settle(outcome: RunOutcome): void;
  /** Gives everything back; no worker ran the request. */
  release(): void;
}

export interface Admission {
  /**
   * Admits a chat request or throws the `ApiError` of its refusal. The tokens it
   * may cost are reserved until the lease is settled.
   */
  admitChat(
    principal: Principal,
    request: ChatRequest,
  ): Promise<ChatLease>;
}

/** How the admission of one chat request ended, for metrics. */
export interface Decision {
  /** `unavailable`: Redis could not answer. `failed`: an internal error, such as a corrupt record. */
  result: Admitted | Refusal | "unavailable" | "failed";
  durationMs: number;
}

export interface AdmissionOptions {
  limiter: Pick<Limiter, "admit" | "settle">;
  catalog: Catalog;
  now: MonotonicNow;
  /** Told of a principal whose key does not exist any more. */
  onUnknown: (principal: Principal) => void;
  /** Must not throw. */
  onDecision?: (decision: Decision) => void;
}

export function createAdmission(options: AdmissionOptions): Admission {
  const { limiter, catalog, now, onUnknown, onDecision } = options;
  return {
    async admitChat(principal, request) {
      const startedAtMs = now();
      const tell = (result: Decision["result"]) =>
        onDecision?.({ result, durationMs: now() - startedAtMs });
      const { model } = request;
      const { outputTokensMax } = catalog.get(model) ?? {};
      const estimate = estimateTokens(request, outputTokensMax);
      const wantTokens = estimate.totalTokens;
      const ask = { scope: "chat", model, wantTokens } as const;
      const decision = await limiter.admit(principal, ask).catch((error) => {
        tell(error instanceof ApiError ? "unavailable" : "failed");
        throw error;
      });
      tell(decision);
      if (!decision.isAdmitted) {
        if (decision.reason === "unknown") onUnknown(principal);
        throw refusalError(decision);
      }
      const freed = decision.isSlotLimited
        ? Promise.withResolvers<void>()
        : null;
      return {
        slotFreed: freed?.promise ?? null,
        headers: rateLimitHeaders(decision.rates),
        settle(outcome) {
          limiter.settle(decision, costOf(outcome, estimate), freed?.resolve);
        },
        release() {
          const nothing = { promptTokens: 0, completionTokens: 0 };
          const cost = { ...nothing, kind: "cancelled" } as const;
          limiter.settle(decision, cost, freed?.resolve);
        },
      };
    },
  };
}

/** Admits chat requests: returns a lease or throws the HTTP error of the refusal. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunOutcome } from "../dispatch/run.ts";
import { remember } from "./bounded_map.ts";
import { costOf, estimateTokens } from "./cost.ts";
import type { Admitted, Limiter } from "./limiter.ts";
import { type HeaderFields, rateLimitHeaders } from "./rate_limit_headers.ts";
import { type Refusal, refusalError } from "./refusal.ts";

/** Held by an admitted request until it is settled or released. */
export interface ChatLease {
  /**
   * Resolves when the slot was freed, or the first attempt to free it failed.
   * Null if no concurrency limit applies, so that no request can wait for the slot.
   */
  readonly slotFreed: Promise<void> | null;
  /** The `x-ratelimit-*` headers of the answer. */
  readonly headers: HeaderFields;
  /** Charges the cost of the run. Does not block or throw. */
  settle(outcome: RunOutcome): void;
  /** Returns everything that was taken; no worker ran the request. */
  release(): void;
}

export interface Admission {
  /**
   * Throws the refusal of a key that was just refused for a limit, for as long as
   * that limit holds, so that its next body is not read. Does not call Redis for
   * other keys.
   */
  checkRefused(principal: Principal): Promise<void>;
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
  limiter: Pick<Limiter, "admit" | "look" | "settle">;
  catalog: Catalog;
  now: MonotonicNow;
  /** Called with a principal whose key no longer exists. */
  onUnknown: (principal: Principal) => void;
  /** Must not throw. */
  onDecision?: (decision: Decision) => void;
}

const REFUSED_KEYS_MAX = 10_000;

export function createAdmission(options: AdmissionOptions): Admission {
  const { limiter, catalog, now, onUnknown, onDecision } = options;
  /** Keys that were refused for a limit, and until when that limit may hold. */
  const refusedUntilMs = new Map<string, number>();

  /** Calls `ask`, and throws the refusal if there is one. */
  const decide = async <T extends Admitted | null>(
    principal: Principal,
    ask: () => Promise<T | Refusal>,
  ): Promise<T> => {
    const startedAtMs = now();
    const report = (result: Decision["result"]) =>
      onDecision?.({ result, durationMs: now() - startedAtMs });
    const decision = await ask().catch((error) => {
      report(error instanceof ApiError ? "unavailable" : "failed");
      throw error;
    });
    if (decision !== null) report(decision);
    if (decision === null || decision.isAdmitted) return decision;
    const { keyId } = principal;
    if (decision.reason === "unknown") onUnknown(principal);
    if (decision.reason === "limited") {
      const untilMs = now() + decision.waitMs;
      remember(refusedUntilMs, keyId, untilMs, REFUSED_KEYS_MAX);
    }
    throw refusalError(decision);
  };

  return {
    async checkRefused(principal) {
      const untilMs = refusedUntilMs.get(principal.keyId);
      if (untilMs === undefined) return;
      if (now() < untilMs) {
        await decide(principal, () => limiter.look(principal, "chat"));
      }
      refusedUntilMs.delete(principal.keyId);
    },
    async admitChat(principal, request) {
      const { model } = request;
      const { output_tokens: outputTokens } = catalog.get(model) ?? {};
      const estimate = estimateTokens(request, outputTokens);
      const wantTokens = estimate.totalTokens;
      const ask = { scope: "chat", model, wantTokens } as const;
      const lease = await decide(
        principal,
        () => limiter.admit(principal, ask),
      );
      const freed = lease.isSlotLimited ? Promise.withResolvers<void>() : null;
      return {
        slotFreed: freed?.promise ?? null,
        headers: rateLimitHeaders(lease.rates),
        settle(outcome) {
          limiter.settle(lease, costOf(outcome, estimate), freed?.resolve);
        },
        release() {
          const nothing = { promptTokens: 0, completionTokens: 0 };
          const cost = { ...nothing, kind: "cancelled" } as const;
          limiter.settle(lease, cost, freed?.resolve);
        },
      };
    },
  };
}

/** Admits chat requests: returns a lease or throws the HTTP error of the refusal. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import type { Principal } from "@gateway/shared/keys/record";
import type { Log } from "@gateway/shared/process/log";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunOutcome } from "../dispatch/run.ts";
import { costOf, estimateTokens, isCounted } from "./cost.ts";
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

  /** Asks, and throws the refusal if there is one. */
  const decide = async <T extends Admitted | null>(
    principal: Principal,
    ask: () => Promise<T | Refusal>,
  ): Promise<T> => {
    const startedAtMs = now();
    const tell = (result: Decision["result"]) =>
      onDecision?.({ result, durationMs: now() - startedAtMs });
    let decision;
    try {
      decision = await ask();
    } catch (error) {
      tell(error instanceof ApiError ? "unavailable" : "failed");
      throw error;
    }
    if (decision !== null) tell(decision);
    if (decision === null || decision.isAdmitted) return decision;
    if (decision.reason === "unknown") onUnknown(principal);
    if (decision.reason === "limited") {
      refusedUntilMs.delete(principal.keyId);
      refusedUntilMs.set(principal.keyId, now() + decision.waitMs);
      const [oldest = ""] = refusedUntilMs.keys();
      if (refusedUntilMs.size > REFUSED_KEYS_MAX) refusedUntilMs.delete(oldest);
    }
    throw refusalError(decision, random);
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
    async admitChat(principal, request, requestId) {
      const model = catalog.get(request.model);
      const estimate = estimateTokens(request, model?.outputTokensMax);
      const admitted = await decide(
        principal,
        () =>
          limiter.admit(principal, {
            scope: "chat",
            model: request.model,
            wantTokens: estimate.totalTokens,
            requestId,
          }),
      );
      const freed = admitted.isSlotLimited
        ? Promise.withResolvers<void>()
        : null;
      return {
        slotFreed: freed?.promise ?? null,
        headers: rateLimitHeaders(admitted.rates),
        settle(outcome) {
          if (outcome.kind === "complete" && !isCounted(outcome)) {
            log.warn("usage_missing", {
              requestId: publicRequestId(requestId),
            });
          }
          limiter.settle(admitted, costOf(outcome, estimate), freed?.resolve);
        },
        release() {
          const kind = "cancelled";
          const nothing = {
            promptTokens: 0,
            completionTokens: 0,
            kind,
          } as const;
          limiter.settle(admitted, nothing, freed?.resolve);
        },
      };
    },
  };
}

/** Admits requests: returns a lease or throws the HTTP error of the refusal. */
import { setTimeout as delay } from "node:timers/promises";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { KeyScope, Principal } from "@gateway/shared/keys/record";
import type { ModelKind } from "@gateway/shared/models/kinds";
import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunOutcome } from "../dispatch/outcome.ts";
import type { HeaderFields } from "../http/exchange.ts";
import { remember } from "@gateway/shared/process/maps";
import { type Cost, costOf, type Estimate, type Reservation } from "./cost.ts";
import type { Admitted, Limiter } from "./limiter.ts";
import { rateLimitHeaders, type Refusal, refusalError } from "./refusal.ts";

export interface RunLease {
  readonly headers: HeaderFields;
  /** What `endVideo` needs when the video of this request has ended. */
  readonly reservation: Reservation;
  /**
   * Charges the cost of the run. Null: no worker ran the request, so everything is
   * returned but the request itself. Does not block or throw.
   */
  settle(outcome: RunOutcome | null): void;
  /** Instead of `settle`: as if the request had never been admitted. */
  undo(): void;
}

/** What a request asks to be admitted to. */
export interface AdmissionAsk {
  readonly scope: KeyScope;
  /** Null while an upload has not named it: the key's right to it is not checked. */
  readonly model: string | null;
  readonly estimate: Estimate;
}

/**
 * `unavailable`: Redis could not answer. `failed`: an internal error, such as a corrupt
 * record.
 */
export type Decision = Admitted | Refusal | "unavailable" | "failed";

const REFUSED_KEYS_MAX = 10_000;
/**
 * A request without a free slot is asked for again after these waits: a client may be
 * faster, on another edge, than the settlement of the request that it has just read.
 */
const SLOT_WAITS_MS = [5, 20, 75];

export type Admission = ReturnType<typeof createAdmission>;

export function createAdmission({
  limiter,
  now,
  onUnknown,
  onDecision,
  onCharged,
}: {
  limiter: Limiter;
  now: MonotonicNow;
  onUnknown: (principal: Principal) => void;
  onDecision?: (decision: Decision, durationMs: number) => void;
  /** Gets what an admitted request is charged, once, for the metrics. */
  onCharged?: (model: string, unit: UsageUnit | null, cost: Cost) => void;
}) {
  /** Keys that were refused for a limit, and until when that limit may hold. */
  const refusedUntilMs = new Map<string, number>();

  const refuse = (principal: Principal, refusal: Refusal): never => {
    if (refusal.reason === "unknown") onUnknown(principal);
    if (refusal.reason === "limited") {
      const untilMs = now() + refusal.waitMs;
      remember(refusedUntilMs, {
        key: principal.keyId,
        value: untilMs,
        sizeMax: REFUSED_KEYS_MAX,
      });
    }
    throw refusalError(refusal);
  };

  /** Reports a decision. Throws the error of a refusal. */
  const decide = async <T extends Admitted | null>(
    principal: Principal,
    ask: () => Promise<T | Refusal>,
  ): Promise<T> => {
    for (let round = 0;; round += 1) {
      const startedAtMs = now();
      const report = (decision: Decision) =>
        onDecision?.(decision, now() - startedAtMs);
      const decision = await ask().catch((error) => {
        report(error instanceof ApiError ? "unavailable" : "failed");
        throw error;
      });
      if (decision === null) return decision;
      const waitMs = SLOT_WAITS_MS[round];
      if (waitMs === undefined || !hasNoSlot(decision)) {
        report(decision);
        return decision.isAdmitted ? decision : refuse(principal, decision);
      }
      await delay(waitMs);
    }
  };

  return {
    /**
     * Throws the refusal of a key that was just refused for a limit, while that holds:
     * its next body is not read.
     */
    async checkRefused(principal: Principal, kind: ModelKind): Promise<void> {
      const untilMs = refusedUntilMs.get(principal.keyId);
      if (untilMs === undefined) return;
      if (now() < untilMs) {
        await decide(principal, () => limiter.look(principal, kind));
      }
      refusedUntilMs.delete(principal.keyId);
    },
    /**
     * The models the key may use; empty: all. Throws if it may not be used, or lacks
     * the scope. Consumes nothing.
     */
    async modelsOf(
      principal: Principal,
      scope: KeyScope | null,
    ): Promise<readonly string[]> {
      const rights = await limiter.rightsOf(principal, scope);
      return "reason" in rights ? refuse(principal, rights) : rights;
    },
    /**
     * Admits a request or throws its refusal. What it may cost is reserved until the
     * lease is settled.
     */
    async admit(
      principal: Principal,
      { scope, model, estimate }: AdmissionAsk,
    ): Promise<RunLease> {
      const { totalTokens: wantTokens, units: wantUnits } = estimate;
      const ask = { scope, model, wantTokens, wantUnits };
      const admitted = await decide(
        principal,
        () => limiter.admit(principal, ask),
      );
      return {
        headers: rateLimitHeaders(admitted.rates),
        reservation: admitted,
        settle(outcome) {
          const cost = costOf(outcome, estimate);
          // Without a model nothing ran: it is an upload that has just begun.
          if (model !== null) {
            onCharged?.(model, estimate.units?.unit ?? null, cost);
          }
          void limiter.settle(admitted, cost);
        },
        undo: () => void limiter.settle(admitted, null),
      };
    },
  };
}

const hasNoSlot = (decision: Admitted | Refusal): boolean =>
  !decision.isAdmitted && decision.reason === "limited" &&
  decision.limit === "concurrency";

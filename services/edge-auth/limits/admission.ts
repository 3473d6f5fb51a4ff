/** Admits requests: returns a lease or throws the HTTP error of the refusal. */
import { setTimeout as delay } from "node:timers/promises";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { KeyScope, Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import type { Usage } from "@gateway/shared/openai/completion";
import type {
  UsageEndpoint,
  UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import { ApiError } from "@gateway/shared/openai/error";
import type { RunOutcome } from "../dispatch/outcome.ts";
import type { QueueSettings } from "../dispatch/queue/share.ts";
import type { HeaderFields } from "../http/exchange.ts";
import { remember } from "@gateway/shared/process/maps";
import type { AnswerLengths } from "./budgets/answer_lengths.ts";
import type { HoldSteps } from "./hold_steps.ts";
import type { EndUserNames } from "./callers/end_users.ts";
import type { Caller } from "./callers/caller.ts";
import { type Cost, costOf, type Estimate } from "./cost.ts";
import type { Ask, Grant, Limiter } from "./limiter.ts";
import {
  type Charge,
  nanosOfUsage,
  nanosToHold,
  priced,
  type Rate,
  rateOf,
} from "./rate.ts";
import type { Reservation } from "./settlement.ts";
import { rateLimitHeaders, type Refusal, refusalError } from "./refusal.ts";

/** The lease of an admitted request: its slot, and what it may cost. */
export interface RunLease {
  /** The state of its limits, for its answer. */
  readonly headers: HeaderFields;
  /** What `endVideo` needs when the video of this request has ended. */
  readonly reservation: Reservation;
  /** How it waits for a slot; absent: like all others. */
  readonly queue?: QueueSettings | undefined;
  /** For how long the key wants its answers to be kept; absent: not at all. */
  readonly keepSeconds?: number | undefined;
  /**
   * Charges the cost of the run. Null: no worker ran the request, so everything is
   * returned but the request itself. Does not block or throw. Returns the charge; null:
   * none. `isShared`: other edges may settle it, too, and the first one counts.
   */
  settle(
    outcome: RunOutcome | null,
    options?: { isShared: boolean },
  ): Charge | null;
  /**
   * What a request with this usage costs, in billionths; null: it has no price. Absent:
   * answers do not say it.
   */
  readonly nanosOf?: ((usage: Usage) => number | null) | undefined;
  /**
   * Its answers have this many tokens by now: it may hold more of budgets for the next
   * ones. Does not block or throw. Absent: it holds nothing, or its cost was known
   * before.
   */
  readonly onTokens?: ((tokens: number) => void) | undefined;
  /** Instead of `settle`: as if the request had never been admitted. */
  undo(): void;
}

/** What a request asks to be admitted to. */
export interface AdmissionAsk {
  readonly scope: KeyScope;
  /** Null while an upload has not named it: the key's right to it is not checked. */
  readonly model: string | null;
  /** The endpoint by which usage is counted; absent: it is not known. */
  readonly endpoint?: UsageEndpoint | null;
  readonly estimate: Estimate;
  /** For which end user of its key it is; absent: it names none. */
  readonly endUser?: EndUserNames | undefined;
}

/**
 * `unavailable`: Redis could not answer. `failed`: an internal error, such as a corrupt
 * record.
 */
export type Decision = Grant | Refusal | "unavailable" | "failed";

const REFUSED_KEYS_MAX = 10_000;
/**
 * A request without a free slot is asked for again after these waits: a client may be
 * faster, on another edge, than the settlement of the request that it has just read.
 */
const SLOT_WAITS_MS = [5, 20, 75];

/** Admission as requests use it. */
export interface Admission {
  /**
   * Rejects with the refusal of a key that was just refused for a limit, while that
   * holds: its next body is not read. Undefined for all other keys.
   */
  checkRefused(principal: Caller, kind: ModelKind): Promise<void> | undefined;
  /**
   * The models the key may use; empty: all. Throws if it may not be used, or lacks the
   * scope. Consumes nothing.
   */
  modelsOf(
    principal: Caller,
    scope: KeyScope | null,
  ): Promise<readonly string[]>;
  /**
   * Admits a request or throws its refusal. What it may cost is reserved until the
   * lease is settled.
   */
  admit(principal: Caller, ask: AdmissionAsk): Promise<RunLease>;
}

/** What a charge is for: it decides which counters and prices apply. */
export interface ChargeSubject {
  readonly model: string;
  readonly endpoint: UsageEndpoint | null;
  /** The unit of the charge; null: tokens. */
  readonly unit: UsageUnit | null;
  /** The prices of the model; null or absent: none are in force. */
  readonly rate?: Rate | null;
}

/** What {@link LimitedAdmission} needs. */
export interface AdmissionOptions {
  limiter: Pick<Limiter, "admit" | "look" | "rightsOf" | "settle">;
  now: MonotonicNow;
  /** The models with their prices. */
  catalog: Catalog;
  /** How long answers without a bound are; absent: nobody learns it. */
  answerLengths?: Pick<AnswerLengths, "expected" | "saw">;
  /** Lets running answers hold more; absent: they hold what they did at first. */
  holdSteps?: Pick<HoldSteps, "watch">;
  /** Whether answers say what they cost. Default: false. */
  showsCost?: boolean;
  /** A principal that was remembered no longer exists. */
  onUnknown: (principal: Principal) => void;
  onDecision?: (decision: Decision, durationMs: number) => void;
  /** Gets what an admitted request is charged, once, for the metrics. */
  onCharged?: (subject: ChargeSubject, cost: Cost) => void;
}

/** Only the edge that has a lease settles it. */
const EXCLUSIVE = { isShared: false };

/** Admits by the rights and limits of a key and its owner. */
export class LimitedAdmission implements Admission {
  readonly #options: AdmissionOptions;
  /** Keys that were refused for a limit, and until when that limit may hold. */
  readonly #refusedUntilMs = new Map<string, number>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  checkRefused(principal: Caller, kind: ModelKind): Promise<void> | undefined {
    return this.#refusedUntilMs.has(principal.keyId)
      ? this.#lookAgain(principal, kind)
      : undefined;
  }

  async #lookAgain(principal: Caller, kind: ModelKind): Promise<void> {
    const { limiter, now } = this.#options;
    const untilMs = this.#refusedUntilMs.get(principal.keyId) ?? -Infinity;
    if (now() < untilMs) {
      await this.#decide(principal, () => limiter.look(principal, kind));
    }
    this.#refusedUntilMs.delete(principal.keyId);
  }

  async modelsOf(
    principal: Caller,
    scope: KeyScope | null,
  ): Promise<readonly string[]> {
    const rights = await this.#options.limiter.rightsOf(principal, scope);
    return "reason" in rights ? this.#refuse(principal, rights) : rights;
  }

  async admit(
    principal: Caller,
    { scope, model, endpoint = null, estimate, endUser }: AdmissionAsk,
  ): Promise<RunLease> {
    const { limiter, onCharged, catalog, showsCost = false } = this.#options;
    const { answerLengths, holdSteps } = this.#options;
    const { totalTokens: wantTokens, promptTokens, units: wantUnits } =
      estimate;
    const rate = rateOf(catalog, model);
    // An upload that has not named its model: what others have is checked.
    const learned = model === null
      ? null
      : answerLengths?.expected(model) ?? null;
    const wantNanos = model === null ? 1 : nanosToHold(estimate, rate, learned);
    const ask: Ask = {
      scope,
      model,
      endpoint,
      wantTokens,
      promptTokens,
      wantUnits,
      wantNanos,
      rate,
      endUser,
    };
    const grant = await this.#decide(
      principal,
      () => limiter.admit(principal, ask),
    );
    const unit = estimate.units?.unit ?? null;
    return {
      headers: rateLimitHeaders(grant.rates),
      reservation: grant,
      queue: grant.queue,
      keepSeconds: grant.keepSeconds,
      settle(outcome, { isShared } = EXCLUSIVE) {
        const cost = priced(costOf(outcome, estimate), unit, rate);
        // Without a model nothing ran: it is an upload that has just begun.
        if (model !== null) {
          onCharged?.({ model, endpoint, unit, rate }, cost);
          const { count } = estimate.openAnswers ?? {};
          const isLength = count !== undefined && cost.kind === "complete";
          // Only budgets need it, which hold nothing of a model without a price.
          if (isLength && cost.nanos !== undefined) {
            answerLengths?.saw(model, cost.completionTokens / count);
          }
        }
        void limiter.settle(grant, cost, isShared);
        return { cost, rate };
      },
      nanosOf: showsCost && rate !== null
        ? (usage) => nanosOfUsage(usage, rate, estimate.bounds)
        : undefined,
      onTokens: holdSteps?.watch(grant, { estimate, rate, learned }),
      undo: () => void limiter.settle(grant, null),
    };
  }

  /** Reports a decision. Throws the error of a refusal. */
  async #decide<T extends Grant | null>(
    principal: Principal,
    ask: () => Promise<T | Refusal>,
  ): Promise<T> {
    const { now, onDecision } = this.#options;
    for (let round = 0;; round += 1) {
      const startedAtMs = now();
      let decision: T | Refusal;
      try {
        decision = await ask();
      } catch (error) {
        const failure = error instanceof ApiError ? "unavailable" : "failed";
        onDecision?.(failure, now() - startedAtMs);
        throw error;
      }
      if (decision === null) return decision;
      const waitMs = SLOT_WAITS_MS[round];
      if (waitMs === undefined || !hasNoSlot(decision)) {
        onDecision?.(decision, now() - startedAtMs);
        return decision.isAdmitted
          ? decision
          : this.#refuse(principal, decision);
      }
      await delay(waitMs);
    }
  }

  #refuse(principal: Principal, refusal: Refusal): never {
    const { now, onUnknown, catalog } = this.#options;
    if (refusal.reason === "unknown") onUnknown(principal);
    // Other end users of the key may be served.
    if (refusal.reason === "limited" && refusal.holder !== "user") {
      remember(this.#refusedUntilMs, {
        key: principal.keyId,
        // A budget may be raised at any time, which the next look finds.
        value: now() + refusal.waitMs,
        sizeMax: REFUSED_KEYS_MAX,
      });
    }
    throw refusalError(refusal, catalog.prices);
  }
}

const hasNoSlot = (decision: Grant | Refusal): boolean =>
  !decision.isAdmitted && decision.reason === "limited" &&
  (decision.limit === "concurrency" || decision.limit === "budget_held");

/**
 * Checks in Redis whether a request is within the rights and limits of its key and of
 * its owner.
 */
import { createBatches } from "@gateway/shared/bus/outbox";
import {
  type WallNow,
  wallNow as systemNow,
} from "@gateway/shared/process/clock";
import * as record from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import {
  type ModelKind,
  scopeOf,
  UNIT_OF_KIND,
} from "@gateway/shared/models/kinds";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { CallOptions } from "@gateway/shared/redis/calls";
import type { RedisReply } from "@gateway/shared/redis/connection";
import type { QueueSettings } from "../dispatch/queue/share.ts";
import { ScriptCalendar } from "./clock/script_calendar.ts";
import {
  endUserId,
  type EndUserNames,
  EndUserSources,
} from "./callers/end_users.ts";
import { type Caller, CallerAddresses } from "./callers/caller.ts";
import { LeaseBudgets } from "./budgets/lease_budgets.ts";
import type { Cost } from "./cost.ts";
import {
  admissionIn,
  admitCall,
  grantIn,
  modelsIn,
  otherTimeIn,
  type Question,
  questionTerms,
  subjectOf,
} from "./admit_call.ts";
import { type LeaseAsk, LeaseIds } from "./lease_ids.ts";
import { Leases, type LeasesOptions } from "./leases.ts";
import * as refusal from "./refusal.ts";
import { ADMIT, SETTLE } from "./scripts.ts";
import { ServerClock } from "./clock/server_clock.ts";
import { type Reservation, settleCall, videoEnd } from "./settlement.ts";

/** What a request asks to be admitted to, and what it may cost. */
export interface Ask extends LeaseAsk {
  scope: record.KeyScope;
  /** What it may cost, to be held of budgets, in billionths; absent: it has no price. */
  wantNanos?: number | null;
  /** For which end user of its key it is; absent: it names none. */
  endUser?: EndUserNames | undefined;
}

interface Waiting {
  readonly question: Question;
  readonly resolve: (reply: RedisReply) => void;
  readonly reject: (error: unknown) => void;
}

/** The request may run. It must be settled exactly once when it has ended. */
export interface Grant extends Reservation {
  readonly isAdmitted: true;
  readonly rates: refusal.Rates;
  /** What it holds of budgets, in billionths; absent or 0: nothing. */
  readonly heldNanos?: number;
  /** How it waits for a slot; absent: like all others. */
  readonly queue?: QueueSettings | undefined;
  /** For how long the key wants its answers to be kept; absent: not at all. */
  readonly keepSeconds?: number | undefined;
}

/**
 * The link's probe: a write that the edge's Redis user is allowed and that changes
 * nothing.
 */
export const LIMITER_PROBE: readonly string[] = [
  "ZADD",
  record.ownerLeaseKey("probe"),
  "XX",
  "0",
  "probe",
];

/** What {@link Limiter} needs. */
export interface LimiterOptions extends Omit<LeasesOptions, "unsettledMax"> {
  /** How long a decision may take. Default: `KEY_LIMITS.checkMs`. */
  deadlineMs?: number;
  /** Tells the time until Redis has told its own. Default: the clock of the system. */
  wallNow?: WallNow;
  /** A request of this key has got a lease. */
  onLease?: (principal: record.Principal) => void;
  /** The time zone of the days and months of budgets. Default: UTC. */
  budgetZone?: string;
}

/** How often an admission is asked for until the source of end users is known. */
const SOURCES_MAX = 3;
/** A clock that jumps may be seen once more while a call is under way. */
const CALENDARS_MAX = 3;
/** What the smallest request of a priced model costs. */
const LEAST_NANOS = "1";

/**
 * Checks keys and limits in Redis, with one round trip each. Throws
 * `service_unavailable` within 150 ms when Redis cannot answer or has lost its data.
 */
export class Limiter {
  /** The leases of all requests that it has admitted. */
  readonly leases: Leases;
  readonly #redis: LimiterOptions["redis"];
  readonly #deadlineMs: number;
  readonly #serverClock: ServerClock;
  readonly #wallNow: WallNow;
  readonly #onLease: LimiterOptions["onLease"];
  readonly #calendar: ScriptCalendar;
  readonly #addresses = new CallerAddresses();
  readonly #leaseIds = new LeaseIds();
  readonly #endUsers = new EndUserSources();
  readonly #budgets = new LeaseBudgets();
  /** Requests of this turn of the event loop with the same key, scope and unit. */
  readonly #asking = createBatches<Waiting>((waiting) =>
    void this.#send(waiting)
  );

  constructor(
    { deadlineMs, wallNow, onLease, budgetZone = "UTC", ...options }:
      LimiterOptions,
  ) {
    this.leases = new Leases(options);
    this.#wallNow = wallNow ?? systemNow;
    this.#onLease = onLease;
    this.#calendar = new ScriptCalendar(budgetZone);
    this.#redis = options.redis;
    this.#deadlineMs = deadlineMs ?? KEY_LIMITS.checkMs;
    this.#serverClock = new ServerClock(options.now);
  }

  /** What Redis' clock is expected to show, in Unix ms. */
  get expectedMs(): number {
    return this.#serverClock.expectedMs ?? this.#wallNow();
  }

  /** Admits a request, whose slot and reservation it holds until it is settled. */
  async admit(
    principal: Caller,
    ask: Ask,
  ): Promise<Grant | refusal.Refusal> {
    for (let round = 0; round < SOURCES_MAX; round += 1) {
      const decision = await this.#admitOnce(principal, ask);
      if (typeof decision !== "string") return decision;
      this.#endUsers.keep(principal, decision);
    }
    throw new Error(`The end users of ${principal.keyId} change all the time`);
  }

  /** Returns the source of the key's end users if the request was asked for another. */
  async #admitOnce(
    principal: Caller,
    ask: Ask,
  ): Promise<Grant | refusal.Refusal | string> {
    const { scope, model, endpoint = null, wantTokens } = ask;
    const { wantUnits = null, rate = null, wantNanos = null } = ask;
    const atMs = this.expectedMs;
    const source = this.#endUsers.sourceOf(principal);
    const endUser = endUserId(source, ask.endUser);
    // The end of a video may be settled by an edge of an earlier version.
    const mayNameBudgets = wantNanos !== null &&
      wantUnits?.unit !== "videoSeconds";
    const budgets = mayNameBudgets
      ? this.#budgets.namesOf(principal, endUser !== "")
      : "";
    const terms = this.#leaseIds.next(ask, { endUser, atMs });
    const reservation: Reservation = {
      id: budgets === "" ? terms : `${terms}~${wantNanos}${budgets}`,
      principal,
      model,
      endpoint,
      atMs,
      reservedTokens: wantTokens,
      reservedUnits: wantUnits,
      rate,
    };
    const address = this.#addresses.digitsOf(principal);
    const question: Question = {
      principal,
      scope,
      unit: wantUnits?.unit ?? null,
      source,
      budgets,
      terms: questionTerms(reservation, { wantNanos, address }),
      release: () => void this.leases.settle({ reservation, cost: null }),
    };
    const grant = await this.#ask(question, admissionIn);
    if (typeof grant === "string" || !grant.isAdmitted) return grant;
    this.#serverClock.saw(grant.atMs);
    const { heldNanos: nanos, budgets: changed } = grant;
    if (changed !== undefined) {
      this.#budgets.keep(principal, endUser !== "", changed);
    }
    const isInLease = budgets !== "" && changed === undefined &&
      nanos === wantNanos;
    this.leases.hold(reservation, isInLease ? { nanos, budgets } : null);
    this.#onLease?.(principal);
    return {
      ...reservation,
      isAdmitted: true,
      atMs: grant.atMs,
      isHeld: grant.isHeld || budgets !== "",
      heldNanos: nanos,
      rates: grant.rates,
      queue: grant.queue,
      keepSeconds: grant.keepSeconds,
    };
  }

  /**
   * The refusal that the smallest request of a kind would get now, or null. Consumes
   * nothing.
   */
  async look(
    principal: Caller,
    kind: ModelKind,
  ): Promise<refusal.Refusal | null> {
    const unit = UNIT_OF_KIND[kind];
    const address = this.#addresses.digitsOf(principal);
    const tokens = unit === null ? "1" : "0";
    const terms = ["", tokens, "0", "", LEAST_NANOS, address];
    const question = { principal, scope: scopeOf(kind), unit, terms };
    const grant = await this.#ask(question, grantIn);
    return grant.isAdmitted ? null : grant;
  }

  /**
   * The models that the key may use (empty: all), without its limits. Consumes nothing.
   */
  rightsOf(
    principal: Caller,
    scope: record.KeyScope | null,
  ): Promise<readonly string[] | refusal.Refusal> {
    const address = this.#addresses.digitsOf(principal);
    const terms = ["", "", "0", "", "", address];
    return this.#ask({ principal, scope, unit: null, terms }, modelsIn);
  }

  /**
   * Frees the slot, charges the actual use; null: undoes the admission, with the
   * request that it counted. Resolves after the first attempt; delivery is retried
   * until it succeeds. `isShared`: only if nobody else has done it. Undefined for one
   * that has ended.
   */
  settle(
    grant: Grant,
    cost: Cost | null,
    isShared = false,
  ): Promise<unknown> | undefined {
    const lease = this.leases.release(grant.id);
    if (lease === null) return undefined;
    const { hold } = lease;
    return this.leases.settle({ reservation: grant, cost, isShared, hold });
  }

  /**
   * Ends a video that a request has started: frees its slot, charges the seconds that
   * were made (0: it failed). Returns its cost, or null if it had ended before. May be
   * repeated if it throws.
   */
  async endVideo(
    reservation: Reservation,
    seconds: number,
  ): Promise<Cost | null> {
    const settlement = videoEnd(reservation, seconds);
    const input = settleCall([settlement]);
    try {
      const options = { deadlineMs: this.#deadlineMs };
      const reply = await this.#redis.evalScript(SETTLE, input, options);
      const isEnded = Array.isArray(reply) && reply[0] === 1;
      return isEnded ? settlement.cost : null;
    } catch (error) {
      throw refusal.redisFailure(error);
    }
  }

  /**
   * Returns the reservation of a video that no edge follows: delivered like a
   * settlement.
   */
  async releaseVideo(reservation: Reservation): Promise<void> {
    await this.leases.settle(videoEnd(reservation, 0));
  }

  async #ask<T>(
    question: Question,
    parse: (reply: RedisReply) => T,
  ): Promise<T | refusal.Refusal> {
    try {
      const reply = await new Promise<RedisReply>((resolve, reject) => {
        this.#asking.add(subjectOf(question), { question, resolve, reject });
      });
      const [status] = Array.isArray(reply) ? reply : [];
      if (status === "empty") throw refusal.storeIsEmpty();
      return refusal.isKeyRefusal(status)
        ? { isAdmitted: false, reason: status }
        : parse(reply);
    } catch (error) {
      if (mayHaveAdmitted(error)) question.release?.();
      throw refusal.redisFailure(error);
    }
  }

  /**
   * Asks for all of these requests, which share a key, a scope and a unit, in one call;
   * again if the time of Redis is not in the calendar that it was told, which is so for
   * a moment at midnight, or after its clock has jumped. Never rejects.
   */
  async #send(waiting: readonly Waiting[]): Promise<void> {
    const questions = waiting.map(({ question }) => question);
    const options: CallOptions = {
      deadlineMs: this.#deadlineMs,
      onAbandoned: (late) => releaseAdmitted(questions, late),
    };
    try {
      let calendar = this.#calendar.at(this.expectedMs);
      for (let round = 1;; round += 1) {
        const { expectedMs } = this.#serverClock;
        const input = admitCall(questions, { expectedMs, calendar });
        const replies = await this.#redis.evalScript(ADMIT, input, options);
        const otherMs = otherTimeIn(replyTo(replies, 0));
        if (otherMs === null || round >= CALENDARS_MAX) {
          waiting.forEach(({ resolve }, at) => resolve(replyTo(replies, at)));
          return;
        }
        calendar = this.#calendar.keep(otherMs);
      }
    } catch (error) {
      for (const { reject } of waiting) reject(error);
    }
  }
}

const replyTo = (replies: RedisReply, index: number): RedisReply =>
  Array.isArray(replies) ? replies[index] ?? null : null;

/** Undoes what a call has admitted, or may have, that nobody waits for any more. */
function releaseAdmitted(
  questions: readonly Question[],
  late: RedisReply,
): void {
  questions.forEach(({ release }, index) => {
    const reply = replyTo(late, index);
    if (!Array.isArray(reply) || reply[0] === "ok") release?.();
  });
}

/**
 * A lost connection or an invalid reply; after a deadline, `onAbandoned` gets the late
 * reply.
 */
function mayHaveAdmitted(error: unknown): boolean {
  if (!(error instanceof RedisUnavailableError)) return !isDenied(error);
  return error.reason === "connection_lost";
}

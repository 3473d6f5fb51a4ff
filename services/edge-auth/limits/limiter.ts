/**
 * Checks in Redis whether a request is within the rights and limits of its key and of
 * its owner.
 */
import { createBatches } from "@gateway/shared/bus/outbox";
import {
  type WallNow,
  wallNow as systemNow,
} from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import * as record from "@gateway/shared/keys/record";
import {
  dayLimitField,
  usageDay,
  type UsageEndpoint,
  usageHour,
  usageSuffix,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import {
  type ModelKind,
  scopeOf,
  UNIT_OF_KIND,
} from "@gateway/shared/models/kinds";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisReply } from "@gateway/shared/redis/link";
import { ToldCalendar } from "./clock/told_calendar.ts";
import { type Caller, CallerAddresses } from "./caller.ts";
import type { Cost, Units } from "./cost.ts";
import { grantIn, modelsIn } from "./admit_reply.ts";
import { Leases, type LeasesOptions } from "./leases.ts";
import { leaseId, nanosReserved, priced, type Rate } from "./rate.ts";
import * as refusal from "./refusal.ts";
import { ADMIT, SETTLE } from "./scripts.ts";
import { ServerClock } from "./clock/server_clock.ts";
import {
  HOUR_MS,
  type Reservation,
  settleCall,
  type Settlement,
  videoKeys,
} from "./settlement.ts";

/** What a request asks to be admitted to, and what it may cost. */
export interface Ask {
  scope: record.KeyScope;
  /** A model id of the catalog, or null where none is involved. */
  model: string | null;
  /** The endpoint by which usage is counted. */
  endpoint?: UsageEndpoint | null;
  /** Tokens to reserve, see `cost.ts`. 0: token limits do not apply. */
  wantTokens: number;
  /** How many of these tokens the prompt has. Default: all. */
  promptTokens?: number;
  wantUnits?: Units | null;
  /** The prices of the model; absent: none are in force. */
  rate?: Rate | null;
  /** What it may cost, to be held of budgets, in billionths; absent: it has no price. */
  wantNanos?: number | null;
}

/** What the admission script is asked about one request. */
interface Question {
  readonly principal: record.Principal;
  readonly scope: record.KeyScope | null;
  readonly unit: UsageUnit | null;
  /** Model, tokens, units, lease id, billionths and address, for the script. */
  readonly terms: readonly string[];
  /** Undoes an admission whose reply was malformed, late or lost. */
  readonly release?: () => void;
}

interface Waiting extends Question {
  readonly resolve: (reply: RedisReply) => void;
  readonly reject: (error: unknown) => void;
}

/** The request may run. It must be settled exactly once when it has ended. */
export interface Grant extends Reservation {
  readonly isAdmitted: true;
  readonly rates: refusal.Rates;
  /** What it holds of budgets, in billionths; absent or 0: nothing. */
  readonly heldNanos?: number;
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
  /** The hour of the last lease. */
  #hour = { number: NaN, text: "" };
  readonly #onLease: LimiterOptions["onLease"];
  readonly #calendar: ToldCalendar;
  readonly #addresses = new CallerAddresses();
  /** Random, so that the lease ids of different processes never collide. */
  readonly #leasePrefix = newRequestId();
  #leaseCount = 0;
  /** Requests of this turn of the event loop with the same key, scope and unit. */
  readonly #asking = createBatches<Waiting>((waiting) => this.#send(waiting));

  constructor(
    { deadlineMs, wallNow, onLease, budgetZone = "UTC", ...options }:
      LimiterOptions,
  ) {
    this.leases = new Leases(options);
    this.#wallNow = wallNow ?? systemNow;
    this.#onLease = onLease;
    this.#calendar = new ToldCalendar(budgetZone);
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
    const { scope, model, endpoint = null, wantTokens } = ask;
    const { wantUnits = null, rate = null, wantNanos = null } = ask;
    const amounts = { reservedTokens: wantTokens, reservedUnits: wantUnits };
    const id = this.#newLease(ask);
    const lease = { id, principal, model, endpoint, ...amounts, rate };
    const atMs = this.expectedMs;
    const reversal = { reservation: { ...lease, atMs }, cost: null };
    const { unit = null, count = 0 } = wantUnits ?? {};
    const question: Question = {
      principal,
      scope,
      unit,
      terms: [
        model ?? "",
        String(wantTokens),
        String(count),
        id,
        String(wantNanos ?? ""),
        this.#addresses.digitsOf(principal),
      ],
      release: () => void this.leases.settle(reversal),
    };
    const grant = await this.#ask(question, grantIn);
    if (!grant.isAdmitted) return grant;
    this.#serverClock.saw(grant.atMs);
    this.leases.hold(lease);
    this.#onLease?.(principal);
    return { ...grant, ...lease };
  }

  /** The hour of a time as leases have it: `2026112809`. */
  #hourOf(timeMs: number): string {
    const number = Math.floor(timeMs / HOUR_MS);
    if (number !== this.#hour.number) {
      const text = usageDay(timeMs) + usageHour(timeMs);
      this.#hour = { number, text };
    }
    return this.#hour.text;
  }

  /** The id of a lease, which says what its request reserves. */
  #newLease(
    { model, endpoint, wantTokens, promptTokens, wantUnits, rate = null }: Ask,
  ): string {
    const count = this.#leaseCount;
    this.#leaseCount += 1;
    // A video is settled at its end, whatever becomes of this edge.
    const units = wantUnits?.unit === "videoSeconds" ? null : wantUnits ?? null;
    const prompt = promptTokens ?? wantTokens;
    const size = { promptTokens: prompt, totalTokens: wantTokens, units };
    const timeMs = this.expectedMs;
    return leaseId(`${this.#leasePrefix}.${count.toString(36)}`, {
      hour: this.#hourOf(timeMs),
      promptTokens: prompt,
      completionTokens: wantTokens - prompt,
      unit: units?.unit ?? null,
      count: units?.count ?? 0,
      nanos: units === wantUnits || !wantUnits ? nanosReserved(size, rate) : 0,
      isUnpriced: rate !== null && rate.prices === null,
      suffix: usageSuffix({ model: model ?? "", endpoint }),
    });
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
   * until it succeeds.
   */
  async settle(grant: Grant, cost: Cost | null): Promise<void> {
    if (!this.leases.release(grant.id)) return;
    await this.leases.settle({ reservation: grant, cost });
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
  releaseVideo(reservation: Reservation): Promise<void> {
    return this.leases.settle(videoEnd(reservation, 0));
  }

  async #ask<T>(
    question: Question,
    parse: (reply: RedisReply) => T,
  ): Promise<T | refusal.Refusal> {
    const { principal, scope, unit, release } = question;
    try {
      const reply = await new Promise<RedisReply>((resolve, reject) => {
        const sharing = `${principal.keyId} ${scope} ${unit}`;
        this.#asking.add(sharing, { ...question, resolve, reject });
      });
      const [status] = Array.isArray(reply) ? reply : [];
      if (status === "empty") throw refusal.storeIsEmpty();
      return refusal.isKeyRefusal(status)
        ? { isAdmitted: false, reason: status }
        : parse(reply);
    } catch (error) {
      if (mayHaveAdmitted(error)) release?.();
      throw refusal.redisFailure(error);
    }
  }

  /** Asks for all of these requests, which share a key, a scope and a unit, in one call. */
  #send(waiting: readonly Waiting[]): void {
    this.#sendIn(waiting, this.#calendar.at(this.expectedMs)).then(
      (replies) =>
        waiting.forEach(({ resolve }, at) => resolve(replyTo(replies, at))),
      (error) => waiting.forEach(({ reject }) => reject(error)),
    );
  }

  /**
   * Asks with a calendar; again if the time of Redis is not in it, which is so for a
   * moment at midnight, or after its clock has jumped.
   */
  async #sendIn(
    waiting: readonly Waiting[],
    calendar: string,
    round = 1,
  ): Promise<RedisReply> {
    const [first] = waiting;
    if (first === undefined) return null;
    const input = {
      keys: keysOf(first),
      args: [
        record.recordKey(first.principal),
        record.ownerLimitsKey(first.principal.ownerId),
        first.scope ?? "",
        first.unit === null ? "" : dayLimitField(first.unit),
        String(this.#serverClock.expectedMs ?? ""),
        calendar,
        ...waiting.flatMap(({ terms }) => terms),
      ],
    };
    const replies = await this.#redis.evalScript(ADMIT, input, {
      deadlineMs: this.#deadlineMs,
      onAbandoned: (late) => releaseAdmitted(waiting, late),
    });
    const reply = replyTo(replies, 0);
    const [status, serverMs] = Array.isArray(reply) ? reply : [];
    const isOther = status === "calendar" && typeof serverMs === "number";
    if (!isOther || round >= CALENDARS_MAX) return replies;
    const told = this.#calendar.keep(serverMs);
    return await this.#sendIn(waiting, told, round + 1);
  }
}

function keysOf({ principal, unit }: Question): string[] {
  const { ownerId } = principal;
  return [
    record.limiterKey(principal),
    record.leaseKey(principal),
    record.ownerLimiterKey(ownerId),
    record.ownerLeaseKey(ownerId),
    ...videoKeys(principal, unit),
  ];
}

const replyTo = (replies: RedisReply, index: number): RedisReply =>
  Array.isArray(replies) ? replies[index] ?? null : null;

/** Undoes what a call has admitted, or may have, that nobody waits for any more. */
function releaseAdmitted(waiting: readonly Waiting[], late: RedisReply): void {
  waiting.forEach(({ release }, index) => {
    const reply = replyTo(late, index);
    if (!Array.isArray(reply) || reply[0] === "ok") release?.();
  });
}

function videoEnd(reservation: Reservation, seconds: number): Settlement {
  const kind = seconds > 0 ? "complete" : "failed";
  const usage = { promptTokens: 0, completionTokens: 0, unitsMade: seconds };
  const cost = priced({ ...usage, kind }, "videoSeconds", reservation.rate);
  // Its request is what may have failed, and was counted.
  return { reservation, cost: { ...cost, kind: "complete" }, isVideo: true };
}

/**
 * A lost connection or an invalid reply; after a deadline, `onAbandoned` gets the late
 * reply.
 */
function mayHaveAdmitted(error: unknown): boolean {
  if (!(error instanceof RedisUnavailableError)) return !isDenied(error);
  return error.reason === "connection_lost";
}

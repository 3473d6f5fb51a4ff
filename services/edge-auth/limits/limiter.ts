/** Checks in Redis whether a request is within the limits of its key and of its owner. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { newRequestId } from "@gateway/shared/process/ids";
import {
  type KeyScope,
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerLimitsKey,
  type Principal,
  recordKey,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink, RedisReply } from "@gateway/shared/redis/link";
import type { RedisScript } from "@gateway/shared/redis/script";
import type { Cost } from "./cost.ts";
import { createLeaseKeeper, type Lease } from "./leases.ts";
import type { Rate, Rates } from "./rate_limit_headers.ts";
import {
  KEY_REFUSALS,
  LIMIT_NAMES,
  redisFailure,
  type Refusal,
  storeIsEmpty,
} from "./refusal.ts";
import { ADMIT, RENEW, SETTLE } from "./scripts.ts";
import { createSettleQueue, releaseOf, settlementOf } from "./settlement.ts";

export type { Cost } from "./cost.ts";
export type { Refusal } from "./refusal.ts";

export interface LimiterOptions {
  redis: RedisLink;
  now: MonotonicNow;
  /** 0 ≤ x < 1: spreads retries. */
  random: () => number;
  log: Log;
  /** How long Redis may take to answer. Default 125 ms. */
  deadlineMs?: number;
}

/** The scope, model and tokens that a request asks for. */
export interface Ask {
  scope: KeyScope;
  /** A model id of the catalog, or null where none is involved. */
  model: string | null;
  /** Tokens to reserve, see `cost.ts`. 0: token limits do not apply. */
  wantTokens: number;
}

/** The request may run. It must be settled exactly once when it has ended. */
export interface Admitted extends Lease {
  readonly isAdmitted: true;
  readonly reservedTokens: number;
  /** The time of the admission, in Unix ms by Redis' clock. */
  readonly atMs: number;
  /** The state of the limits, with this request counted. */
  readonly rates: Rates;
  /** A concurrency limit of the key or the owner applies. */
  readonly isSlotLimited: boolean;
}

/** The scripts to load when the link connects. */
export const LIMITER_SCRIPTS: readonly RedisScript[] = [ADMIT, SETTLE, RENEW];

/** The link's probe: a write that the edge's Redis user is allowed and that changes nothing. */
export const LIMITER_PROBE: readonly string[] = [
  "ZADD",
  ownerLeaseKey("probe"),
  "XX",
  "0",
  "probe",
];

/**
 * Checks keys and limits in Redis, so every edge decides the same. Call `start` to
 * have leases renewed.
 */
export class Limiter {
  readonly #redis: RedisLink;
  readonly #deadlineMs: number;
  readonly #leases: ReturnType<typeof createLeaseKeeper>;
  readonly #settlements: ReturnType<typeof createSettleQueue>;
  // 128 random bits, so that the lease ids of different processes never collide.
  readonly #leasePrefix = newRequestId();
  #leaseCount = 0;

  constructor(options: LimiterOptions) {
    this.#redis = options.redis;
    this.#deadlineMs = options.deadlineMs ?? KEY_LIMITS.checkMs;
    this.#leases = createLeaseKeeper(options);
    this.#settlements = createSettleQueue(options);
  }

  /** Requests that hold a lease. */
  get running(): number {
    return this.#leases.held;
  }

  /** Settlements that Redis has not confirmed yet. */
  get unsettled(): number {
    return this.#settlements.pending;
  }

  /**
   * Decides one request: one round trip. Throws `ApiError` `service_unavailable`
   * within 150 ms when Redis cannot answer or has lost its data; never admits
   * without an answer and never treats a key that cannot be read as unknown.
   */
  async admit(principal: Principal, ask: Ask): Promise<Admitted | Refusal> {
    const id = `${this.#leasePrefix}.${(this.#leaseCount++).toString(36)}`;
    const decision = await this.#ask(principal, ask, id);
    if (!decision.isAdmitted) return decision;
    const reservedTokens = ask.wantTokens;
    const admitted = { ...decision, id, principal, reservedTokens };
    this.#leases.hold(admitted);
    return admitted;
  }

  /** The refusal that the smallest request would get now, or null. Consumes nothing; throws as `admit` does. */
  async look(principal: Principal, scope: KeyScope): Promise<Refusal | null> {
    const smallest = { scope, model: null, wantTokens: 1 };
    const decision = await this.#ask(principal, smallest, "");
    return decision.isAdmitted ? null : decision;
  }

  /** Runs the admission script. With an empty `id` nothing is consumed. */
  async #ask(
    principal: Principal,
    { scope, model, wantTokens }: Ask,
    id: string,
  ): Promise<Grant | Refusal> {
    /** Undoes an admission whose reply arrived too late or was lost. */
    const release = () => {
      if (id === "") return;
      this.#settlements.add(releaseOf(principal, id, wantTokens));
    };
    try {
      const reply = await this.#redis.evalScript(ADMIT, [
        limiterKey(principal),
        leaseKey(principal),
        ownerLimiterKey(principal.ownerId),
        ownerLeaseKey(principal.ownerId),
      ], [
        recordKey(principal),
        ownerLimitsKey(principal.ownerId),
        scope,
        model ?? "",
        String(wantTokens),
        id,
      ], {
        deadlineMs: this.#deadlineMs,
        onAbandoned(late) {
          if (!Array.isArray(late) || late[0] === "ok") release();
        },
      });
      return parseReply(reply);
    } catch (error) {
      if (mayHaveAdmitted(error)) release();
      throw redisFailure(error);
    }
  }

  /**
   * Frees the slot, corrects the reservation to the actual use, counts usage.
   * Returns at once; delivery is retried until it succeeds. A second call does nothing.
   * `onAttempted` is called after the first attempt, successful or not.
   */
  settle(admitted: Admitted, cost: Cost, onAttempted?: () => void): void {
    if (!this.#leases.release(admitted.id)) return;
    this.#settlements.add(settlementOf(admitted, cost), onAttempted);
  }

  /** Starts renewing the leases of running requests. */
  start(): void {
    this.#leases.start();
  }

  /** Waits for settlements to be delivered, at most `timeoutMs`. Returns the number that were not. */
  async stop(timeoutMs: number): Promise<number> {
    await this.#leases.stop();
    return await this.#settlements.drain(timeoutMs);
  }
}

/**
 * Whether a call that failed may still have admitted the request: the connection was
 * lost, or the reply was invalid. After a deadline, `onAbandoned` gets the late reply.
 */
function mayHaveAdmitted(error: unknown): boolean {
  if (!(error instanceof RedisUnavailableError)) return !isDenied(error);
  return error.reason === "connection_lost";
}

/** An admission as the script replies it. */
type Grant = Pick<Admitted, "isAdmitted" | "atMs" | "rates" | "isSlotLimited">;

/** Parses a reply of the admission script. Throws if it is malformed. */
function parseReply(reply: RedisReply): Grant | Refusal {
  const [status, ...fields] = Array.isArray(reply) ? reply : [];
  const unexpected = () =>
    new Error(`Unexpected reply of the admission: ${JSON.stringify(reply)}`);
  const number = (index: number): number => {
    const value = fields[index];
    if (typeof value !== "number") throw unexpected();
    return value;
  };
  const rate = (index: number): Rate | null => {
    const limit = number(index);
    const [remaining, resetMs] = [number(index + 1), number(index + 2)];
    return limit === 0 ? null : { limit, remaining, resetMs };
  };
  if (status === "empty") throw storeIsEmpty();
  const reason = KEY_REFUSALS.find((each) => each === status);
  if (reason !== undefined) return { isAdmitted: false, reason };
  const rates = { requests: rate(1), tokens: rate(4) };
  if (status === "ok") {
    const isSlotLimited = number(7) === 1;
    return { isAdmitted: true, atMs: number(0), rates, isSlotLimited };
  }
  const [of, name] = String(fields[7]).split(":");
  const limit = LIMIT_NAMES.find((each) => each === name);
  if (status !== "limited" || limit === undefined) throw unexpected();
  if (of !== "key" && of !== "owner") throw unexpected();
  const waitMs = number(8);
  return { isAdmitted: false, reason: status, limit, of, waitMs, rates };
}

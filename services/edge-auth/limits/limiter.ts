/** Asks Redis whether a request is within the limits of its key and of its owner. */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import { lateKey } from "@gateway/shared/keys/limiter_state";
import {
  type KeyScope,
  ownerLimitsKey,
  type Principal,
  recordKey,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink, RedisReply } from "@gateway/shared/redis/link";
import type { RedisScript } from "@gateway/shared/redis/script";
import { ADMIT } from "./admit.lua.ts";
import type { Cost } from "./charge.ts";
import { createLeaseKeeper, type Lease, RENEW } from "./leases.ts";
import type { Rate, Rates } from "./rate_limit_headers.ts";
import {
  keysUnreachable,
  LIMIT_NAMES,
  redisFailure,
  type Refusal,
  storeIsEmpty,
} from "./refusal.ts";
import { SETTLE } from "./settle.lua.ts";
import {
  createSettleQueue,
  limiterKeys,
  releaseOf,
  settlementOf,
} from "./settlement.ts";

export type { Cost } from "./charge.ts";
export type { Refusal } from "./refusal.ts";

export interface LimiterOptions {
  redis: RedisLink;
  now: MonotonicNow;
  /** 0 ≤ x < 1: names this process's leases, and spreads retries. */
  random: () => number;
  log: Log;
  /** How long Redis may be silent. Default 125 ms. */
  deadlineMs?: number;
}

/** What a request asks for. */
export interface Ask {
  scope: KeyScope;
  /** A model id of the catalog, or null where none is involved. */
  model: string | null;
  /** Tokens to reserve, see `token_estimate.ts`. 0: token limits do not apply. */
  wantTokens: number;
  /** For the log. */
  requestId: string;
}

/** The request may run. Has to be settled exactly once when it has ended. */
export interface Admitted extends Lease {
  readonly isAdmitted: true;
  readonly requestId: string;
  readonly reservedTokens: number;
  /** Where the limits stand with this request counted. */
  readonly rates: Rates;
  readonly terms: ReservationTerms;
  /** Key or owner may run only so many at once: others wait for this one's slot. */
  readonly isSlotLimited: boolean;
}

/** What is needed to give back what an admission reserved. */
export interface ReservationTerms {
  /** Unix ms by the server's clock. */
  atMs: number;
  flags: number;
  keyTokensPerMinute: number;
  ownerTokensPerMinute: number;
}

/** Checks keys and limits in Redis: the same answer on every edge. */
export interface Limiter {
  /** Requests that hold a lease. */
  readonly running: number;
  /** Settlements that Redis has not confirmed yet. */
  readonly unsettled: number;
  /**
   * Decides one request: one round trip. Throws `ApiError` `service_unavailable`
   * when Redis cannot answer or has lost its data, within 150 ms; never admits
   * without an answer and never calls an unreachable key unknown.
   */
  admit(principal: Principal, ask: Ask): Promise<Admitted | Refusal>;
  /** The refusal that any request of this key would get now, or null. Takes nothing. */
  look(principal: Principal, scope: KeyScope): Promise<Refusal | null>;
  /**
   * Frees the slot, corrects the reservation to the actual use, counts usage.
   * Returns at once; delivery is retried until it succeeds. A second call does nothing.
   * `onAttempted` is called after the first attempt, whatever came of it.
   */
  settle(admitted: Admitted, cost: Cost, onAttempted?: () => void): void;
  /** Starts renewing the leases of running requests. */
  start(): void;
  /** Waits for settlements to be delivered, at most `timeoutMs`. Returns how many were not. */
  stop(timeoutMs: number): Promise<number>;
}

/** The scripts to load when the link connects. */
export const LIMITER_SCRIPTS: readonly RedisScript[] = [ADMIT, SETTLE, RENEW];

/** The link's probe: a write that the edge's Redis user is allowed and nobody reads. */
export const LIMITER_PROBE: readonly string[] = [
  "SET",
  lateKey("probe", "probe"),
  "1",
  "PX",
  "1000",
];

const OWNER_COUNTS_LEASES = 4;
const KEY_COUNTS_LEASES = 8;

/** Makes a limiter over one link. Call `start` to have leases renewed. */
export function createLimiter(options: LimiterOptions): Limiter {
  const { redis, now, random, log } = options;
  const deadlineMs = options.deadlineMs ?? KEY_LIMITS.checkMs;
  const leases = createLeaseKeeper({ redis, now, log });
  const settlements = createSettleQueue({ redis, now, random, log });
  // 128 random bits: leases of different processes must not meet.
  const leasePrefix = newRequestId();
  let leaseCount = 0;

  return {
    get running() {
      return leases.held;
    },
    get unsettled() {
      return settlements.pending;
    },
    async admit(principal, ask) {
      const id = `${leasePrefix}.${(leaseCount++).toString(36)}`;
      /** Undoes an admission whose answer came too late or was lost. */
      const release = () =>
        settlements.add(releaseOf(principal, id, ask.wantTokens));
      let decision;
      try {
        const reply = await redis.evalScript(
          ADMIT,
          limiterKeys(principal),
          argumentsOf(principal, ask, id),
          {
            deadlineMs,
            onAbandoned(late) {
              if (!Array.isArray(late) || late[0] === "ok") release();
            },
          },
        );
        decision = parseReply(reply);
      } catch (error) {
        if (mayHaveAdmitted(error)) release();
        throw redisFailure(error);
      }
      if (decision === "empty") throw keysUnreachable(storeIsEmpty());
      if ("reason" in decision) return decision;
      const { rates, terms } = decision;
      const admitted: Admitted = {
        isAdmitted: true,
        id,
        principal,
        requestId: ask.requestId,
        reservedTokens: ask.wantTokens,
        rates,
        terms,
        isOwnerCounted: has(terms, OWNER_COUNTS_LEASES),
        isSlotLimited: has(terms, OWNER_COUNTS_LEASES | KEY_COUNTS_LEASES),
        isLost: false,
      };
      leases.hold(admitted);
      return admitted;
    },
    async look(principal, scope) {
      // No request costs less than a token.
      const ask = { scope, model: null, wantTokens: 1, requestId: "" };
      try {
        const reply = await redis.evalScript(
          ADMIT,
          limiterKeys(principal),
          argumentsOf(principal, ask, ""),
          { deadlineMs },
        );
        const decision = parseReply(reply);
        if (decision === "empty") throw storeIsEmpty();
        return "reason" in decision ? decision : null;
      } catch (error) {
        throw redisFailure(error);
      }
    },
    settle(admitted, reported, onAttempted) {
      if (!leases.release(admitted.id)) return;
      const cost = checked(reported, admitted, log);
      settlements.add(settlementOf(admitted, cost), onAttempted);
    },
    start: () => leases.start(),
    async stop(timeoutMs) {
      await leases.stop();
      return await settlements.drain(timeoutMs);
    },
  };
}

function argumentsOf(
  principal: Principal,
  ask: Ask,
  leaseId: string,
): string[] {
  return [
    recordKey(principal),
    ownerLimitsKey(principal.ownerId),
    ask.scope,
    ask.model ?? "",
    String(ask.wantTokens),
    leaseId,
  ];
}

function has({ flags }: ReservationTerms, wanted: number): boolean {
  return (flags & wanted) !== 0;
}

/** Invalid counts would stop the script half way, so they are treated as not reported. */
function checked(cost: Cost, admitted: Admitted, log: Log): Cost {
  const { promptTokens, completionTokens } = cost;
  if (isCount(promptTokens) && isCount(completionTokens)) return cost;
  const requestId = publicRequestId(admitted.requestId);
  log.error("usage_invalid", { requestId, promptTokens, completionTokens });
  return { ...cost, promptTokens: null, completionTokens: null };
}

function isCount(value: number | null): boolean {
  return value === null || (Number.isSafeInteger(value) && value >= 0);
}

/**
 * The connection broke under the call, or its answer is not one. At a deadline the
 * answer may still come, and is waited for.
 */
function mayHaveAdmitted(error: unknown): boolean {
  return error instanceof RedisUnavailableError
    ? error.reason === "connection_lost"
    : !isDenied(error);
}

/** Reads a reply of the admission script. Throws when it is not one. */
function parseReply(
  reply: RedisReply,
): { rates: Rates; terms: ReservationTerms } | Refusal | "empty" {
  const fields = Array.isArray(reply) ? reply : [];
  const unexpected = () =>
    new Error(`Unexpected reply of the admission: ${JSON.stringify(reply)}`);
  const number = (index: number): number => {
    const value = fields[index];
    if (typeof value !== "number") throw unexpected();
    return value;
  };
  const rate = (index: number): Rate | null => {
    const limit = number(index);
    if (limit === 0) return null;
    const remaining = number(index + 1);
    return { limit, remaining, resetMs: number(index + 2) };
  };
  const rates = () => ({ requests: rate(2), tokens: rate(5) });
  const [status] = fields;
  switch (status) {
    case "ok":
      return {
        rates: rates(),
        terms: {
          atMs: number(1),
          flags: number(8),
          keyTokensPerMinute: number(9),
          ownerTokensPerMinute: number(10),
        },
      };
    case "limited": {
      const [of, name] = String(fields[8]).split(":");
      const limit = LIMIT_NAMES.find((each) => each === name);
      if ((of !== "key" && of !== "owner") || limit === undefined) {
        throw unexpected();
      }
      const waitMs = number(9);
      return {
        isAdmitted: false,
        reason: "limited",
        limit,
        of,
        waitMs,
        rates: rates(),
      };
    }
    case "empty":
      return status;
    case "unknown":
    case "expired":
    case "disabled":
    case "scope":
    case "model":
      return { isAdmitted: false, reason: status };
    default:
      throw unexpected();
  }
}

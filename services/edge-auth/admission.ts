import type { MonotonicNow } from "@gateway/shared/process/clock";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import {
  ownerLimitsKey,
  type Principal,
  recordKey,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { RedisScript } from "@gateway/shared/redis/script";
import { ADMIT } from "./admit.lua.ts";
import {
  isAdmitted,
  parseAdmitReply,
  type ReservationTerms,
} from "./admit_reply.ts";
import {
  type Admitted,
  type Ask,
  type Outcome,
  type Refused,
  refusedBy,
} from "./admitted.ts";
import { createLeaseKeeper } from "./lease_keeper.ts";
import { keysUnreachable, redisFailure, storeIsEmpty } from "./refusal.ts";
import { RENEW } from "./renew.lua.ts";
import { SETTLE } from "./settle.lua.ts";
import { createSettleQueue } from "./settle_queue.ts";
import { limiterKeys, releaseOf, settlementOf } from "./settlement.ts";

export type { Admitted, Ask, Outcome, Refused } from "./admitted.ts";

export interface AdmissionOptions {
  redis: RedisLink;
  now: MonotonicNow;
  /** 0 ≤ x < 1: names this process's leases, and spreads retries. */
  random: () => number;
  log: Log;
  /** How long Redis may be silent. Default 125 ms. */
  deadlineMs?: number;
}

/** Checks keys and limits in Redis: the same answer on every edge. */
export interface Admission {
  /** Requests that hold a lease. */
  readonly running: number;
  /** Settlements not yet known to have reached Redis. */
  readonly unsettled: number;
  /**
   * Decides one request: one round trip. Throws `ApiError` `service_unavailable`
   * when Redis cannot answer or has lost its data, within 150 ms; never admits without an answer
   * and never calls an unreachable key unknown.
   */
  admit(principal: Principal, ask: Ask): Promise<Admitted | Refused>;
  /**
   * Frees the slot, corrects the reservation to what was used, counts usage.
   * Returns at once; delivery is repeated until it works. A second call does nothing.
   * `onAttempted` is called once Redis has answered, or could not be asked, for the
   * first time.
   */
  settle(
    admitted: Admitted,
    outcome: Outcome,
    onAttempted?: () => void,
  ): void;
  /** Starts renewing the leases of running requests. */
  start(): void;
  /** Waits for settlements to be delivered, at most `timeoutMs`. Returns how many were not. */
  stop(timeoutMs: number): Promise<number>;
}

/** What an edge's link must know: give it to `createRedisLink`. */
export const ADMISSION_SCRIPTS: readonly RedisScript[] = [ADMIT, SETTLE, RENEW];

const OWNER_COUNTS_LEASES = 4;
const KEY_COUNTS_LEASES = 8;

/** Makes an admission over one link. Call `start` to have leases renewed. */
export function createAdmission(options: AdmissionOptions): Admission {
  const { redis, now, random, log } = options;
  const deadlineMs = options.deadlineMs ?? KEY_LIMITS.checkMs;
  const leases = createLeaseKeeper({ redis, now, log });
  const settlements = createSettleQueue({ redis, now, random, log });
  // 128 random bits: leases of different processes must not meet.
  const leasePrefix = newRequestId();
  let leaseCount = 0;
  /** Undoes an admission whose answer came too late or was lost. */
  const release = (principal: Principal, leaseId: string, ask: Ask) => {
    settlements.add(releaseOf(principal, leaseId, ask.wantTokens));
  };

  return {
    get running() {
      return leases.held;
    },
    get unsettled() {
      return settlements.pending;
    },
    async admit(principal, ask) {
      const leaseId = `${leasePrefix}.${(leaseCount++).toString(36)}`;
      let reply;
      try {
        const answer = await redis.evalScript(
          ADMIT,
          limiterKeys(principal),
          [
            recordKey(principal),
            ownerLimitsKey(principal.ownerId),
            ask.scope,
            ask.model ?? "",
            String(ask.wantTokens),
            leaseId,
          ],
          {
            deadlineMs,
            onAbandoned(late) {
              if (late !== null && !isAdmitted(late)) return;
              release(principal, leaseId, ask);
            },
          },
        );
        reply = parseAdmitReply(answer);
      } catch (error) {
        if (mayHaveAdmitted(error)) release(principal, leaseId, ask);
        throw redisFailure(error);
      }
      if (reply.status === "empty") throw keysUnreachable(storeIsEmpty());
      if (reply.status !== "ok") return refusedBy(reply);
      const { rates, terms } = reply;
      const isOwnerCounted = has(terms, OWNER_COUNTS_LEASES);
      const admitted: Admitted = {
        isAdmitted: true,
        id: leaseId,
        principal,
        requestId: ask.requestId,
        reservedTokens: ask.wantTokens,
        rates,
        terms,
        isOwnerCounted,
        isSlotLimited: isOwnerCounted || has(terms, KEY_COUNTS_LEASES),
        isLost: false,
      };
      leases.hold(admitted);
      return admitted;
    },
    settle(admitted, reported, onAttempted) {
      if (!leases.release(admitted.id)) return;
      const outcome = checked(reported, admitted, log);
      settlements.add(settlementOf(admitted, outcome), onAttempted);
    },
    start: () => leases.start(),
    async stop(timeoutMs) {
      await leases.stop();
      return await settlements.drain(timeoutMs);
    },
  };
}

function has({ flags }: ReservationTerms, wanted: number): boolean {
  return (flags & wanted) !== 0;
}

/** Counts that are not counts would stop the script half way: they are taken as not reported. */
function checked(outcome: Outcome, admitted: Admitted, log: Log): Outcome {
  const { promptTokens, completionTokens } = outcome;
  if (isCount(promptTokens) && isCount(completionTokens)) return outcome;
  const requestId = publicRequestId(admitted.requestId);
  log.error("usage_invalid", { requestId, promptTokens, completionTokens });
  return { ...outcome, promptTokens: null, completionTokens: null };
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

/** The call to the script that admits: what it is asked, and what it replies. */
import { isBudgetName } from "@gateway/shared/keys/budget_state";
import {
  dayLimitField,
  type UsageUnit,
} from "@gateway/shared/keys/limiter_state";
import * as record from "@gateway/shared/keys/record";
import type { RedisReply } from "@gateway/shared/redis/connection";
import type { ScriptInput } from "@gateway/shared/redis/link";
import type { QueueSettings } from "../dispatch/queue/share.ts";
import * as refusal from "./refusal.ts";
import { type Reservation, videoKeys } from "./settlement.ts";

/** What is asked about one request. */
export interface Question {
  readonly principal: record.Principal;
  readonly scope: record.KeyScope | null;
  readonly unit: UsageUnit | null;
  /** Model, tokens, units, lease id, billionths and address, for the script. */
  readonly terms: readonly string[];
  /** The source that tells end users of the key apart; empty: it is not known. */
  readonly source?: string;
  /** The budgets that its lease names; empty: none. */
  readonly budgets?: string;
  /** Undoes an admission whose reply was malformed, late or lost. */
  readonly release?: () => void;
}

/** The terms of a request that reserves something, from an address. */
export function questionTerms(
  { id, model, reservedTokens, reservedUnits }: Reservation,
  { wantNanos, address }: { wantNanos: number | null; address: string },
): string[] {
  return [
    model ?? "",
    String(reservedTokens),
    String(reservedUnits?.count ?? 0),
    id,
    String(wantNanos ?? ""),
    address,
  ];
}

/** Questions with the same subject can be asked in one call. */
export function subjectOf(
  { principal, scope, unit, source = "", budgets = "" }: Question,
): string {
  return `${principal.keyId} ${scope} ${unit} ${source}${budgets}`;
}

/** The KEYS and ARGV of the script for questions of one subject, at least one. */
export function admitCall(
  questions: readonly Question[],
  { expectedMs, calendar }: {
    /** What Redis' clock is expected to show, in Unix ms; null: not known. */
    expectedMs: number | null;
    calendar: string;
  },
): ScriptInput {
  const [first] = questions;
  if (first === undefined) throw new Error("There is nothing to ask");
  const { principal, scope, unit, source = "", budgets = "" } = first;
  const { ownerId } = principal;
  return {
    keys: [
      record.limiterKey(principal),
      record.leaseKey(principal),
      record.ownerLimiterKey(ownerId),
      record.ownerLeaseKey(ownerId),
      ...videoKeys(principal, unit),
    ],
    args: [
      record.recordKey(principal),
      record.ownerLimitsKey(ownerId),
      scope ?? "",
      unit === null ? "" : dayLimitField(unit),
      String(expectedMs ?? ""),
      calendar,
      source,
      budgets,
    ].concat(...questions.map(({ terms }) => terms)),
  };
}

/** Where a decision on limits has what `lua/admit.lua` describes. */
const AT = {
  time: 1,
  requests: 2,
  tokens: 5,
  /** What is held, or which limit refuses. */
  word: 8,
  /** What follows that. */
  rest: 9,
};

/** The models that a key may use. Throws where the reply does not say so. */
export function modelsIn(reply: RedisReply): readonly string[] {
  const [status, models] = Array.isArray(reply) ? reply : [];
  if (status !== "ok" || typeof models !== "string") throw malformed(reply);
  return models === "" ? [] : models.split(",");
}

/**
 * The source that tells the end users of the key apart, if the script was asked for
 * those of another one; empty: the key does not tell them apart. Null: it was not.
 */
export function endUserSourceIn(reply: RedisReply): string | null {
  const [status, source] = Array.isArray(reply) ? reply : [];
  return status === "end_user" && typeof source === "string" ? source : null;
}

/** The time of Redis, in Unix ms, if it is not in the calendar of the call; or null. */
export function otherTimeIn(reply: RedisReply): number | null {
  const [status, serverMs] = Array.isArray(reply) ? reply : [];
  return status === "calendar" && typeof serverMs === "number"
    ? serverMs
    : null;
}

/** What the script says of an admission. */
export interface Admitted {
  readonly isAdmitted: true;
  /** In Unix ms, by Redis' clock. */
  readonly atMs: number;
  readonly rates: refusal.Rates;
  /** Whether it holds something of budgets. */
  readonly isHeld: boolean;
  /** What it holds, in billionths. */
  readonly heldNanos: number;
  /** How it waits for a slot; absent: like all others. */
  readonly queue?: QueueSettings | undefined;
  /** For how long the key wants its answers to be kept; absent: not at all. */
  readonly keepSeconds?: number | undefined;
  /** The budgets that its lease should name; absent: those that it names. */
  readonly budgets?: string | undefined;
}

/** {@link endUserSourceIn} a reply, or else {@link grantIn}. */
export const admissionIn = (
  reply: RedisReply,
): string | Admitted | refusal.Refusal =>
  endUserSourceIn(reply) ?? grantIn(reply);

/** A decision on limits. Throws where the reply is none. */
export function grantIn(
  reply: RedisReply,
): Admitted | refusal.Refusal {
  if (!Array.isArray(reply)) throw malformed(reply);
  const atMs = numberIn(reply, AT.time);
  const rates = {
    requests: rateIn(reply, AT.requests),
    tokens: rateIn(reply, AT.tokens),
  };
  const [status] = reply;
  const word = reply[AT.word] ?? null;
  if (status === "ok") {
    const [queue = null, keepSeconds, budgets] = reply.slice(AT.rest);
    return {
      isAdmitted: true,
      atMs,
      rates,
      isHeld: word !== null,
      heldNanos: typeof word === "number" ? word : 0,
      queue: queue === null ? undefined : queueIn(queue),
      keepSeconds: typeof keepSeconds === "number" ? keepSeconds : undefined,
      budgets: typeof budgets === "string" ? budgets : undefined,
    };
  }
  const [holder, limit] = String(word).split(":");
  const isKnown = refusal.isLimitName(limit) &&
    refusal.isHolder(holder);
  const [waitMs, name, ...amounts] = reply.slice(AT.rest);
  if (status !== "limited" || !isKnown || typeof waitMs !== "number") {
    throw malformed(reply);
  }
  const [allowed = 0, spent = 0, held = 0, resetMs = 0] = amounts.map(Number);
  return {
    isAdmitted: false,
    reason: status,
    limit,
    holder,
    waitMs: waitMs < 0 ? Infinity : waitMs,
    rates,
    ...isBudgetName(name) && {
      budget: {
        name,
        limit: allowed,
        spent,
        held,
        resetMs: resetMs === 0 ? null : resetMs,
      },
    },
  };
}

const PERCENT = 100;

/** The weights of the account and key of a request, and whether it stands back. */
function queueIn(reply: RedisReply): QueueSettings {
  const numbers = Array.isArray(reply) ? reply.map(Number) : [];
  const [weight = 0, keyWeight = 0, batch = 0] = numbers;
  return {
    weight: (weight || PERCENT) / PERCENT,
    keyWeight: (keyWeight || PERCENT) / PERCENT,
    isBatch: batch === 1,
  };
}

/** A limit per minute, which has three numbers; null: there is none. */
function rateIn(reply: RedisReply[], at: number): refusal.RateState | null {
  const limit = numberIn(reply, at);
  const remaining = numberIn(reply, at + 1);
  const resetMs = numberIn(reply, at + 2);
  return limit === 0 ? null : { limit, remaining, resetMs };
}

function numberIn(reply: RedisReply[], at: number): number {
  const number = reply[at];
  if (typeof number !== "number") throw malformed(reply);
  return number;
}

function malformed(reply: RedisReply): Error {
  const text = JSON.stringify(reply);
  return new Error(`Unexpected reply of the admission script: ${text}`);
}

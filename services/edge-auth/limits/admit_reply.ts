/** What the replies of the admission script mean. */
import { isBudgetName } from "@gateway/shared/keys/budget_state";
import type { RedisReply } from "@gateway/shared/redis/connection";
import * as refusal from "./refusal.ts";

/** Numbers that every decision on limits has. */
const NUMBERS = 7;
const FIRST_WORD = 7;

/** The models that a key may use. Throws where the reply does not say so. */
export function modelsIn(reply: RedisReply): readonly string[] {
  const [status, models] = Array.isArray(reply) ? reply : [];
  if (status !== "ok" || typeof models !== "string") throw malformed(reply);
  return models === "" ? [] : models.split(",");
}

/**
 * By what the end users of the key are told apart, where the script was asked for those
 * of another source; empty: the key does not tell them apart. Null: it was not.
 */
export function endUserSourceIn(reply: RedisReply): string | null {
  const [status, source] = Array.isArray(reply) ? reply : [];
  return status === "end_user" && typeof source === "string" ? source : null;
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
}

/** A decision on limits. Throws where the reply is none. */
export function grantIn(
  reply: RedisReply,
): Admitted | refusal.Refusal {
  const [status, ...fields] = Array.isArray(reply) ? reply : [];
  const numbers = fields.slice(0, NUMBERS)
    .filter((each) => typeof each === "number");
  const [atMs = 0, rl = 0, rr = 0, rt = 0, tl = 0, tr = 0, tt = 0] = numbers;
  const rates = { requests: rateOf(rl, rr, rt), tokens: rateOf(tl, tr, tt) };
  if (numbers.length < NUMBERS) throw malformed(reply);
  const word = fields[FIRST_WORD];
  if (status === "ok") {
    const isHeld = word !== undefined;
    const heldNanos = typeof word === "number" ? word : 0;
    return { isAdmitted: true, atMs, rates, isHeld, heldNanos };
  }
  const [holder, limit] = String(word).split(":");
  const isKnown = refusal.isLimitName(limit) &&
    refusal.isHolder(holder);
  const waitMs = fields[FIRST_WORD + 1];
  if (status !== "limited" || !isKnown || typeof waitMs !== "number") {
    throw malformed(reply);
  }
  const [name, ...amounts] = fields.slice(FIRST_WORD + 2);
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

function rateOf(limit: number, remaining: number, resetMs: number) {
  return limit === 0 ? null : { limit, remaining, resetMs };
}

function malformed(reply: RedisReply): Error {
  const text = JSON.stringify(reply);
  return new Error(`Unexpected reply of the admission script: ${text}`);
}

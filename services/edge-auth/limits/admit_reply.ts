/** What the replies of the admission script mean. */
import { isBudgetName } from "@gateway/shared/keys/budget_state";
import type { RedisReply } from "@gateway/shared/redis/connection";
import type { QueueSettings } from "../dispatch/queue/share.ts";
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
  /** How it waits for a slot; absent: like all others. */
  readonly queue?: QueueSettings;
  /** For how long the key wants its answers to be kept; absent: not at all. */
  readonly keepSeconds?: number;
  /** Its budgets as its lease is to name them; absent: as its lease does. */
  readonly budgets?: string;
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
    const isHeld = word !== undefined && word !== null;
    const heldNanos = typeof word === "number" ? word : 0;
    const grant = { isAdmitted: true, atMs, rates, isHeld, heldNanos } as const;
    const [queue = null, keepSeconds, budgets] = fields.slice(FIRST_WORD + 1);
    return {
      ...grant,
      ...queue !== null && { queue: queueIn(queue) },
      ...typeof keepSeconds === "number" && { keepSeconds },
      ...typeof budgets === "string" && { budgets },
    };
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

function rateOf(limit: number, remaining: number, resetMs: number) {
  return limit === 0 ? null : { limit, remaining, resetMs };
}

function malformed(reply: RedisReply): Error {
  const text = JSON.stringify(reply);
  return new Error(`Unexpected reply of the admission script: ${text}`);
}

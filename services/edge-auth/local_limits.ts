/** The rules of `admit.lua.ts` in memory, for one key or owner and one edge. */
import type { Limits } from "@gateway/shared/keys/record";
import { CONCURRENCY_WAIT_MS } from "./admit.lua.ts";
import type { LimitName, Rate, Rates } from "./admit_reply.ts";

const MINUTE_MS = 60_000;
/** Of an interval or of a request, as in the script: sums of fractions are not exact. */
const FORGIVEN = 0.01;
/** The same for tokens, whose intervals may be shorter than a millisecond. */
const FORGIVEN_MS = 0.001;

/** Use of one key or owner on this edge since Redis was last heard of. */
export interface LocalUsage {
  /** From then on the limit is whole again; ms of the edge's own clock. */
  requestsTatMs: number;
  tokensTatMs: number;
  dayTokens: number;
  running: number;
}

/** Of one that has asked for nothing in this outage. */
export const NO_USAGE: Readonly<LocalUsage> = {
  requestsTatMs: 0,
  tokensTatMs: 0,
  dayTokens: 0,
  running: 0,
};

/** One part of limits that are cut into `divisor`: at least 1 where there is a limit, 0 where there is none. */
export function share(limits: Limits, divisor: number): Limits {
  const part = (limit: number) =>
    limit === 0 ? 0 : Math.max(1, Math.floor(limit / divisor));
  return {
    requestsPerMinute: part(limits.requestsPerMinute),
    tokensPerMinute: part(limits.tokensPerMinute),
    tokensPerDay: part(limits.tokensPerDay),
    concurrency: part(limits.concurrency),
  };
}

/** What a request comes to. */
export interface Weighing {
  /** The slowest violated limit, or null. */
  limit: LimitName | null;
  waitMs: number;
  /** The usage if the request is admitted. */
  next: LocalUsage;
  /** Where the limits stand without the request, and with it. */
  rates: Rates;
  nextRates: Rates;
}

/** Weighs one more request against limits; changes nothing. The day's budget does not come back before Redis does. */
export function weigh(
  limits: Limits,
  usage: Readonly<LocalUsage>,
  tokens: number,
  nowMs: number,
): Weighing {
  const next = { ...usage, running: usage.running + 1 };
  let limit: LimitName | null = null;
  let waitMs = 0;
  const violate = (name: LimitName, ms: number) => {
    if (ms <= waitMs) return;
    limit = name;
    waitMs = ms;
  };
  if (limits.requestsPerMinute > 0) {
    const gapMs = MINUTE_MS / limits.requestsPerMinute;
    next.requestsTatMs = Math.max(nowMs, usage.requestsTatMs) + gapMs;
    const aheadMs = next.requestsTatMs - nowMs - MINUTE_MS;
    if (aheadMs > gapMs * FORGIVEN) violate("requests", Math.ceil(aheadMs));
  }
  if (limits.tokensPerMinute > 0 && tokens > 0) {
    const tokenMs = MINUTE_MS / limits.tokensPerMinute;
    const baseMs = Math.max(nowMs, usage.tokensTatMs);
    const asked = Math.min(tokens, limits.tokensPerMinute);
    next.tokensTatMs = baseMs + tokens * tokenMs;
    const aheadMs = baseMs + asked * tokenMs - nowMs - MINUTE_MS;
    if (aheadMs > FORGIVEN_MS) violate("tokens", Math.ceil(aheadMs));
  }
  if (limits.concurrency > 0 && usage.running >= limits.concurrency) {
    violate("concurrency", CONCURRENCY_WAIT_MS);
  }
  if (limits.tokensPerDay > 0 && tokens > 0) {
    const asked = Math.min(tokens, limits.tokensPerDay);
    next.dayTokens = usage.dayTokens + tokens;
    if (usage.dayTokens + asked > limits.tokensPerDay) {
      violate("day", MINUTE_MS);
    }
  }
  const rates = ratesOf(limits, usage, nowMs);
  return {
    limit,
    waitMs,
    next,
    rates,
    nextRates: ratesOf(limits, next, nowMs),
  };
}

function ratesOf(
  limits: Limits,
  usage: Readonly<LocalUsage>,
  nowMs: number,
): Rates {
  return {
    requests: rateOf(limits.requestsPerMinute, usage.requestsTatMs, nowMs),
    tokens: rateOf(limits.tokensPerMinute, usage.tokensTatMs, nowMs),
  };
}

function rateOf(limit: number, tatMs: number, nowMs: number): Rate | null {
  if (limit === 0) return null;
  const resetMs = Math.max(0, tatMs - nowMs);
  const left = Math.floor((MINUTE_MS - resetMs) * limit / MINUTE_MS + FORGIVEN);
  return { limit, remaining: Math.max(0, left), resetMs: Math.ceil(resetMs) };
}

/** Of key and owner, what leaves less. */
export function tighter(key: Rates, owner: Rates): Rates {
  return {
    requests: less(key.requests, owner.requests),
    tokens: less(key.tokens, owner.tokens),
  };
}

function less(one: Rate | null, other: Rate | null): Rate | null {
  if (one === null || other === null) return one ?? other;
  return other.remaining < one.remaining ? other : one;
}

import type { MonotonicNow } from "@gateway/shared/clock";
import type { Limits, Principal } from "@gateway/shared/keys/record";
import type {
  KeyPolicy,
  LimitName,
  LimitOwner,
  Rate,
  Rates,
} from "./admit_reply.ts";

/**
 * The opt-in fallback for an outage of Redis (`AUTH_STALE_SECONDS`): keys that
 * Redis admitted on this edge shortly before go on, under this edge's share of
 * their limits. The price: a key disabled while Redis cannot be reached may work
 * for that long, and limits are kept per edge, each at half its even share, so
 * that all edges together stay below them.
 */
export interface LocalLimiter {
  /** Redis has admitted this key just now: what it may do, and that Redis works. */
  remember(principal: Principal, policy: KeyPolicy): void;
  /** Redis has refused this key as a whole: it must not go on in an outage. */
  forget(principal: Principal): void;
  /** Decides without Redis. Null: this key has not been seen recently enough. */
  decide(principal: Principal, ask: LocalAsk): LocalDecision | null;
  /** Ends a request that `decide` admitted. */
  release(principal: Principal): void;
}

export interface LocalAsk {
  scope: string;
  /** Null: no model is involved. */
  model: string | null;
  tokens: number;
  /** The server's clock as this edge last knew it, Unix ms. */
  atMs: number;
}

/** `rates` are of this edge's share: what a caller may do as long as the outage lasts. */
export type LocalDecision =
  | { status: "ok"; rates: Rates; policy: KeyPolicy }
  | { status: "expired" | "scope" | "model" }
  | {
    status: "limited";
    rates: Rates;
    limit: LimitName;
    of: LimitOwner;
    waitMs: number;
  };

export interface LocalLimiterOptions {
  now: MonotonicNow;
  /** How long after Redis last admitted a key it may go on. */
  staleMs: number;
  /** Edges that share the limits, this one included. */
  edgeCount: () => number;
  /** Keys remembered; the longest unused is dropped. */
  entriesMax: number;
}

/** Each edge takes half of its even share: others may count fewer edges than there are. */
const SHARE_DIVISOR = 2;
const MINUTE_MS = 60_000;
const CONCURRENCY_WAIT_MS = 1_000;

interface Entry {
  policy: KeyPolicy;
  seenAtMs: number;
}

/** Use of one key or owner on this edge since Redis was last heard of. */
interface Usage {
  requestsTatMs: number;
  tokensTatMs: number;
  dayTokens: number;
  running: number;
}

/** Makes a limiter that knows no key yet. */
export function createLocalLimiter(options: LocalLimiterOptions): LocalLimiter {
  const { now, staleMs, edgeCount, entriesMax } = options;
  const entries = new Map<string, Entry>();
  const usages = new Map<string, Usage>();

  const usageOf = (id: string): Usage => {
    let usage = usages.get(id);
    if (usage === undefined) {
      usage = { requestsTatMs: 0, tokensTatMs: 0, dayTokens: 0, running: 0 };
      usages.set(id, usage);
    }
    return usage;
  };

  /** Redis counts again, and what ran in the outage is settled there. */
  const forgetIdle = (id: string) => {
    if (usages.get(id)?.running === 0) usages.delete(id);
  };

  return {
    remember(principal, policy) {
      entries.delete(principal.keyId);
      entries.set(principal.keyId, { policy, seenAtMs: now() });
      forgetIdle(principal.keyId);
      forgetIdle(principal.ownerId);
      if (entries.size <= entriesMax) return;
      for (const oldest of entries.keys()) {
        entries.delete(oldest);
        break;
      }
    },
    forget(principal) {
      entries.delete(principal.keyId);
    },
    decide(principal, ask) {
      const entry = entries.get(principal.keyId);
      if (entry === undefined || now() - entry.seenAtMs > staleMs) return null;
      const { policy } = entry;
      const refusal = rightsRefusal(policy, ask);
      if (refusal !== null) return { status: refusal };
      const edges = Math.max(1, edgeCount()) * SHARE_DIVISOR;
      const key = weigh(
        share(policy.keyLimits, edges),
        usageOf(principal.keyId),
        ask.tokens,
        now(),
      );
      const owner = weigh(
        share(policy.ownerLimits, edges),
        usageOf(principal.ownerId),
        ask.tokens,
        now(),
      );
      const worst = key.waitMs >= owner.waitMs
        ? { ...key, of: "key" as const }
        : { ...owner, of: "owner" as const };
      if (worst.limit !== null) {
        const { limit, of, waitMs } = worst;
        const rates = tighter(key.rates, owner.rates);
        return { status: "limited", rates, limit, of, waitMs };
      }
      usages.set(principal.keyId, key.next);
      usages.set(principal.ownerId, owner.next);
      const rates = tighter(key.nextRates, owner.nextRates);
      return { status: "ok", rates, policy };
    },
    release(principal) {
      for (const id of [principal.keyId, principal.ownerId]) {
        const usage = usages.get(id);
        if (usage !== undefined && usage.running > 0) usage.running -= 1;
      }
    },
  };
}

function rightsRefusal(
  policy: KeyPolicy,
  ask: LocalAsk,
): "expired" | "scope" | "model" | null {
  if (policy.expiresAtMs > 0 && policy.expiresAtMs <= ask.atMs) {
    return "expired";
  }
  if (!policy.scopes.includes(ask.scope)) return "scope";
  if (ask.model === null || policy.models.length === 0) return null;
  return policy.models.includes(ask.model) ? null : "model";
}

/** This edge's part of limits: at least 1 where there is a limit, 0 where there is none. */
function share(limits: Limits, divisor: number): Limits {
  const part = (limit: number) =>
    limit === 0 ? 0 : Math.max(1, Math.floor(limit / divisor));
  return {
    requestsPerMinute: part(limits.requestsPerMinute),
    tokensPerMinute: part(limits.tokensPerMinute),
    tokensPerDay: part(limits.tokensPerDay),
    concurrency: part(limits.concurrency),
  };
}

interface Weighing {
  /** The slowest violated limit, or null. */
  limit: LimitName | null;
  waitMs: number;
  /** The usage if the request is admitted. */
  next: Usage;
  /** Where the limits stand without the request, and with it. */
  rates: Rates;
  nextRates: Rates;
}

/** The rules of `admit.lua.ts` in memory. The day's budget does not come back before Redis does. */
function weigh(
  limits: Limits,
  usage: Usage,
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
    if (aheadMs > gapMs / 100) violate("requests", Math.ceil(aheadMs));
  }
  if (limits.tokensPerMinute > 0 && tokens > 0) {
    const tokenMs = MINUTE_MS / limits.tokensPerMinute;
    const baseMs = Math.max(nowMs, usage.tokensTatMs);
    const asked = Math.min(tokens, limits.tokensPerMinute);
    next.tokensTatMs = baseMs + tokens * tokenMs;
    const aheadMs = baseMs + asked * tokenMs - nowMs - MINUTE_MS;
    if (aheadMs > 0.001) violate("tokens", Math.ceil(aheadMs));
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

function ratesOf(limits: Limits, usage: Usage, nowMs: number): Rates {
  return {
    requests: rateOf(limits.requestsPerMinute, usage.requestsTatMs, nowMs),
    tokens: rateOf(limits.tokensPerMinute, usage.tokensTatMs, nowMs),
  };
}

/** A hundredth is forgiven, as in the script: sums of fractions are not exact. */
function rateOf(limit: number, tatMs: number, nowMs: number): Rate | null {
  if (limit === 0) return null;
  const resetMs = Math.max(0, tatMs - nowMs);
  const left = Math.floor((MINUTE_MS - resetMs) * limit / MINUTE_MS + 0.01);
  return { limit, remaining: Math.max(0, left), resetMs: Math.ceil(resetMs) };
}

/** Of key and owner, what leaves less. */
function tighter(key: Rates, owner: Rates): Rates {
  return {
    requests: less(key.requests, owner.requests),
    tokens: less(key.tokens, owner.tokens),
  };
}

function less(one: Rate | null, other: Rate | null): Rate | null {
  if (one === null || other === null) return one ?? other;
  return other.remaining < one.remaining ? other : one;
}

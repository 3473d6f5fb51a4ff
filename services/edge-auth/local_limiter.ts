import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Principal } from "@gateway/shared/keys/record";
import type { KeyPolicy, LimitName, LimitOwner, Rates } from "./admit_reply.ts";
import { dropOldest } from "./drop_oldest.ts";
import {
  type LocalUsage,
  NO_USAGE,
  share,
  tighter,
  weigh,
} from "./local_limits.ts";

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

interface Entry {
  policy: KeyPolicy;
  seenAtMs: number;
}

/** Makes a limiter that knows no key yet. */
export function createLocalLimiter(options: LocalLimiterOptions): LocalLimiter {
  const { now, staleMs, edgeCount, entriesMax } = options;
  const entries = new Map<string, Entry>();
  const usages = new Map<string, LocalUsage>();

  const usageOf = (id: string) => usages.get(id) ?? NO_USAGE;

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
      dropOldest(entries, entriesMax);
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

import type { RedisReply } from "@gateway/shared/redis/link";

/** Where one limit stands: what is left of it, and when it is whole again. */
export interface Rate {
  /** Per minute. */
  limit: number;
  remaining: number;
  /** Until `remaining` is `limit` again if nothing is asked for. */
  resetMs: number;
}

/** The tighter of key and owner for each; null where neither has such a limit. */
export interface Rates {
  requests: Rate | null;
  tokens: Rate | null;
}

/** Names of the four limits. */
export type LimitName = "requests" | "tokens" | "day" | "concurrency";
/** Whose limit it is. */
export type LimitOwner = "key" | "owner";

/** What is needed to give back what an admission reserved. */
export interface ReservationTerms {
  /** Unix ms by the server's clock. */
  atMs: number;
  flags: number;
  keyTokensPerMinute: number;
  ownerTokensPerMinute: number;
}

/** An answer of the admission script, see `admit.lua.ts`. */
export type AdmitReply =
  | { status: "unknown" | "expired" | "disabled" | "scope" | "model" }
  /** Redis holds no data of ours: nothing is known of any key. */
  | { status: "empty" }
  | {
    status: "ok";
    rates: Rates;
    terms: ReservationTerms;
  }
  | {
    status: "limited";
    rates: Rates;
    limit: LimitName;
    of: LimitOwner;
    waitMs: number;
  };

const WHICH: ReadonlyMap<string, { of: LimitOwner; limit: LimitName }> =
  new Map([
    ["key:requests", { of: "key", limit: "requests" }],
    ["key:tokens", { of: "key", limit: "tokens" }],
    ["key:day", { of: "key", limit: "day" }],
    ["key:concurrency", { of: "key", limit: "concurrency" }],
    ["owner:requests", { of: "owner", limit: "requests" }],
    ["owner:tokens", { of: "owner", limit: "tokens" }],
    ["owner:day", { of: "owner", limit: "day" }],
    ["owner:concurrency", { of: "owner", limit: "concurrency" }],
  ]);

/** Reads a reply of the admission script. Throws when it is not one: script and edge do not match. */
export function parseAdmitReply(reply: RedisReply): AdmitReply {
  if (!Array.isArray(reply)) throw unexpected(reply);
  const status = reply[0];
  switch (status) {
    case "ok":
      return {
        status,
        rates: ratesIn(reply),
        terms: {
          atMs: numberAt(reply, 1),
          flags: numberAt(reply, 8),
          keyTokensPerMinute: numberAt(reply, 9),
          ownerTokensPerMinute: numberAt(reply, 10),
        },
      };
    case "limited": {
      const which = WHICH.get(textAt(reply, 8));
      if (which === undefined) throw unexpected(reply);
      return {
        status,
        rates: ratesIn(reply),
        ...which,
        waitMs: numberAt(reply, 9),
      };
    }
    case "empty":
    case "unknown":
    case "expired":
    case "disabled":
    case "scope":
    case "model":
      return { status };
    default:
      throw unexpected(reply);
  }
}

/** True for the reply of an admission that took a lease. */
export function isAdmitted(reply: RedisReply): boolean {
  return Array.isArray(reply) && reply[0] === "ok";
}

function ratesIn(reply: readonly RedisReply[]): Rates {
  return { requests: rateAt(reply, 2), tokens: rateAt(reply, 5) };
}

function rateAt(reply: readonly RedisReply[], index: number): Rate | null {
  const limit = numberAt(reply, index);
  if (limit === 0) return null;
  return {
    limit,
    remaining: numberAt(reply, index + 1),
    resetMs: numberAt(reply, index + 2),
  };
}

function numberAt(reply: readonly RedisReply[], index: number): number {
  const value = reply[index];
  if (typeof value !== "number") throw unexpected(reply);
  return value;
}

function textAt(reply: readonly RedisReply[], index: number): string {
  const value = reply[index];
  if (typeof value !== "string") throw unexpected(reply);
  return value;
}

function unexpected(reply: RedisReply | readonly RedisReply[]): Error {
  return new Error(`Unexpected admission reply: ${JSON.stringify(reply)}`);
}

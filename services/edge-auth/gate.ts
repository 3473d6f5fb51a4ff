/**
 * What the routes need from admission: may this principal do that now, and what
 * did it cost in the end. An interface, so that routes can be tested without Redis.
 */
import type { KeyScope, Principal } from "@gateway/shared/keys/record";
import type { ChatRequest, Usage } from "@gateway/shared/openai/chat";
import type { RunOutcome } from "./chat_job.ts";
import type { PrincipalLookup } from "./principal_lookup.ts";

/** What is settled when a request is over. */
export interface Settlement {
  /** What the backend counted; null when it did not get that far. */
  usage: Usage | null;
  /** Completion tokens known to have been produced. */
  completionTokens: number;
  /** A client that left is `cancelled`, which is no error. */
  kind: RunOutcome["kind"];
  /** A worker ran it: a prompt that no backend saw costs nothing. */
  hasRun: boolean;
  /** Stopped before its end: its client left, its time was up, its key was stopped. */
  isStopped: boolean;
  /** The worker had the last word; else it may have made more than is known. */
  isHeard: boolean;
}

/** An admitted request. Must be settled exactly once, whatever becomes of it. */
export interface Ticket {
  /**
   * Resolves when the slot was given back, or giving it back did not work at the
   * first attempt. Null: no limit counts slots here, so nobody waits for this one.
   */
  readonly slotFreed: Promise<void> | null;
  /** Sets the `x-ratelimit-*` and `RateLimit` headers. */
  setHeaders(headers: Headers): void;
  /** Gives back what was reserved too much. Does not wait and does not throw. */
  settle(settlement: Settlement): void;
}

export interface Gate {
  /** Finds whose key it is by the hash of its value. */
  readonly lookup: Pick<PrincipalLookup, "remembered" | "find">;
  /**
   * Whether the key is enabled, alive and has this right. Consumes nothing.
   * Throws `unauthorized`, `key_disabled`, `forbidden` or `service_unavailable`.
   * Returns the models the key may use; empty: all.
   */
  check(
    principal: Principal,
    scope: KeyScope | null,
  ): Promise<readonly string[]>;
  /**
   * Admits a chat request or throws the `ApiError` of its refusal.
   * The tokens it may cost are reserved until the ticket is settled.
   */
  admitChat(
    principal: Principal,
    request: ChatRequest,
    requestId: string,
  ): Promise<Ticket>;
}

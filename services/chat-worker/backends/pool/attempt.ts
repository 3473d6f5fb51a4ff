import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { Backend, BackendCall, BackendEvent } from "../backend.ts";
import { truncatedAnswer } from "../upstream_error.ts";
import type { CircuitBreaker, Permit } from "./circuit_breaker.ts";
import type { Rank } from "./order.ts";
import {
  type AttemptOutcome,
  faultOf,
  type Verdict,
  VERDICTS,
} from "./verdict.ts";

const LIMITED_MS_DEFAULT = 1_000;

/** A backend with what the pool knows of it. */
export interface Slot extends Rank {
  backend: Backend;
  breaker: CircuitBreaker;
  /** It has said that it is at its limit until then. */
  limitedUntilMs: number;
}

/** One attempt, when it is over. */
export interface AttemptReport {
  /** Of the call. */
  requestId: string;
  /** Name of the backend. */
  backend: string;
  outcome: AttemptOutcome;
  /** From the request to the end of the answer, or to the failure. */
  durationMs: number;
  /** From the request to the first events; null: there were none. */
  firstEventMs: number | null;
  /** For the log: what ended it, null for a success or a reader that stopped. */
  error: unknown;
}

/** What {@link startAttempt} needs beside the slot. */
export interface AttemptDeps {
  now: MonotonicNow;
  onAttempt?: (report: AttemptReport) => void;
}

/** An attempt that has brought its first events. One of the last three methods must be called. */
export interface Begun {
  isBegun: true;
  first: readonly BackendEvent[];
  next(): Promise<IteratorResult<readonly BackendEvent[]>>;
  /** The answer is complete. */
  succeeded(): void;
  /** It broke off with this error. */
  failed(error: unknown): void;
  /** Nobody reads on: ends the attempt, which is no failure. */
  abandoned(): Promise<void>;
}

/** An attempt that failed before its first event. */
export interface Failed {
  isBegun: false;
  slot: Slot;
  error: ApiError;
  verdict: Verdict;
}

/**
 * Asks a backend and waits for its first events. Rejects only for what no other
 * attempt can mend: an abort, or an error of ours. The breaker is told once, at
 * the end: an answer that breaks off is a failure, not a success and a failure.
 */
export async function startAttempt(
  deps: AttemptDeps,
  slot: Slot,
  permit: Permit,
  request: ChatRequest,
  call: BackendCall,
): Promise<Begun | Failed> {
  const { now } = deps;
  const startedAt = now();
  let firstEventMs: number | null = null;

  const report = (outcome: AttemptOutcome, error: unknown = null) =>
    deps.onAttempt?.({
      requestId: call.requestId,
      backend: slot.backend.name,
      outcome,
      durationMs: now() - startedAt,
      firstEventMs,
      error,
    });

  /** Tells breaker and observer; null if the error is no fault of the backend. */
  const judge = (error: unknown): Verdict | null => {
    const isAborted = call.signal.aborted;
    const fault = isAborted ? null : faultOf(error);
    const verdict = fault === null ? null : VERDICTS[fault];
    permit.report(verdict?.result ?? "ignored");
    report(fault ?? (isAborted ? "aborted" : "internal"), error);
    if (verdict?.isLimit) {
      slot.limitedUntilMs = now() + limitedMs(error);
    }
    return verdict;
  };

  const iterator = slot.backend.complete(request, call)[Symbol.asyncIterator]();
  let first: readonly BackendEvent[];
  try {
    const step = await iterator.next();
    if (step.done) throw truncatedAnswer("Answer without any event");
    first = step.value;
  } catch (error) {
    const verdict = judge(error);
    if (verdict === null || !(error instanceof ApiError)) throw error;
    return { isBegun: false, slot, error, verdict };
  }
  firstEventMs = now() - startedAt;
  permit.begun();
  return {
    isBegun: true,
    first,
    next: () => iterator.next(),
    succeeded() {
      permit.report("success");
      report("success");
    },
    failed: (error) => void judge(error),
    async abandoned() {
      permit.report("ignored");
      report("aborted");
      await iterator.return?.();
    },
  };
}

function limitedMs(error: unknown): number {
  return error instanceof ApiError && error.retryAfterMs !== null
    ? error.retryAfterMs
    : LIMITED_MS_DEFAULT;
}

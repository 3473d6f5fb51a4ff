import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { ApiError } from "@gateway/shared/openai/error";
import type { Backend, BackendCall, BackendEvent } from "./backend.ts";
import { type BreakerState, CircuitBreaker, type Permit } from "./breaker.ts";
import {
  truncatedAnswer,
  UpstreamError,
  type UpstreamFault,
} from "./errors.ts";

/** Backends asked for one request. */
const ATTEMPTS_MAX = 3;
/** Before the same backend is asked again: long enough for a proxy to restart, too short to be noticed. */
const RETRY_DELAY_MS_MIN = 50;
const RETRY_DELAY_MS_MAX = 150;
/**
 * Retries that each request adds to the budget, and what it holds at most: when
 * everything fails, each request tried twice would double the load at the worst
 * moment.
 */
const RETRIES_PER_REQUEST = 0.1;
const RETRIES_MAX = 5;
const UNAVAILABLE_MS_MIN = 1_000;
const LIMITED_MS_DEFAULT = 1_000;

/** A backend of the pool. */
export interface PoolBackend {
  backend: Backend & {
    readonly name: string;
    /** Gives up what is kept between calls. Running calls go on. */
    close?(): void;
  };
  /** Lower is tried first. */
  preference: number;
  /** Share of requests among equals. */
  weight: number;
}

/** How an attempt ended. `internal`: an error of ours. */
export type AttemptOutcome = "success" | "aborted" | "internal" | UpstreamFault;

/** One attempt, when it is over. */
export interface AttemptReport {
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

/** What a {@link BackendPool} needs. */
export interface BackendPoolOptions {
  /** At least one. */
  backends: readonly PoolBackend[];
  now: MonotonicNow;
  /** Uniform in [0, 1). */
  random: () => number;
  sleep: Sleep;
  /** For metrics and logs. Must not throw. */
  onAttempt?: (report: AttemptReport) => void;
}

/** A backend with what the pool knows of it. */
interface Slot extends PoolBackend {
  breaker: CircuitBreaker;
  /** It has said that it is at its limit until then. */
  limitedUntilMs: number;
}

/** An attempt that has brought its first events. */
interface Begun {
  first: readonly BackendEvent[];
  iterator: AsyncIterator<readonly BackendEvent[]>;
  /** Must be called once. */
  end(outcome: "success" | "aborted" | "failed", error?: unknown): void;
}

/**
 * The backends of one model, as one backend. After a failure before the first
 * event the next backend is asked, or, if there is only one, the same one again
 * after a moment, within the retry budget. After the first event nothing is
 * repeated: what the caller has is a prefix of one answer.
 *
 * Backends that keep failing are left alone by their circuit breakers; when all
 * are, the error is `service_unavailable`, at once. Backends that said they are
 * at their limit, or busy, are asked last until their wait is over.
 */
export class BackendPool implements Backend {
  readonly #options: BackendPoolOptions;
  readonly #slots: readonly Slot[];
  #retriesLeft = RETRIES_MAX;

  constructor(options: BackendPoolOptions) {
    const { backends, now } = options;
    this.#options = options;
    this.#slots = backends.map((entry) => ({
      ...entry,
      breaker: new CircuitBreaker(now),
      limitedUntilMs: -Infinity,
    }));
  }

  /** By name of the backend, for metrics. */
  breakerStates(): ReadonlyMap<string, BreakerState> {
    return new Map(
      this.#slots.map(({ backend, breaker }) => [backend.name, breaker.state]),
    );
  }

  /** Gives up what the backends keep between calls. */
  close(): void {
    for (const { backend } of this.#slots) backend.close?.();
  }

  async *complete(
    request: ChatRequest,
    call: BackendCall,
  ): AsyncGenerator<readonly BackendEvent[], void, void> {
    call.signal.throwIfAborted();
    this.#retriesLeft = Math.min(
      RETRIES_MAX,
      this.#retriesLeft + RETRIES_PER_REQUEST,
    );
    const { first, iterator, end } = await this.#begin(request, call);
    let isOver = false;
    try {
      yield first;
      for (;;) {
        const step = await iterator.next();
        if (step.done) break;
        yield step.value;
      }
      isOver = true;
      end("success");
    } catch (error) {
      isOver = true;
      end("failed", error);
      throw error;
    } finally {
      if (!isOver) {
        end("aborted");
        await iterator.return?.();
      }
    }
  }

  /** Goes through the backends until one brings its first events. */
  async #begin(request: ChatRequest, call: BackendCall): Promise<Begun> {
    const failures: { slot: Slot; error: UpstreamError }[] = [];
    const attempt = async (slot: Slot): Promise<Begun | null> => {
      const permit = slot.breaker.enter();
      if (permit === null) return null;
      const result = await this.#attempt(slot, permit, request, call);
      if (!(result instanceof UpstreamError)) return result;
      failures.push({ slot, error: result });
      return null;
    };
    for (const slot of this.#candidates()) {
      if (failures.length === ATTEMPTS_MAX) break;
      const begun = await attempt(slot);
      if (begun !== null) return begun;
      const last = failures.at(-1)?.error;
      if (last?.rule.canFailover === false) throw last;
    }
    const [only, ...others] = failures;
    if (only === undefined) throw this.#unavailable();
    if (others.length === 0 && only.error.rule.canRetry && this.#takeRetry()) {
      // Jitter: callers that failed together must not come back together.
      const spreadMs = RETRY_DELAY_MS_MAX - RETRY_DELAY_MS_MIN;
      const { random, sleep } = this.#options;
      await sleep(RETRY_DELAY_MS_MIN + random() * spreadMs, call.signal);
      const begun = await attempt(only.slot);
      if (begun !== null) return begun;
    }
    // A limit tells the caller when to come back; else the last word counts.
    const limited = failures.find(({ error }) => error.rule.isLimit);
    throw (limited ?? failures.at(-1) ?? only).error;
  }

  /**
   * Asks a backend and waits for its first events. Rejects only if no other attempt
   * can help: after an abort, or an error of ours. The breaker is told once, at
   * the end: an answer that breaks off is a failure, not a success and a failure.
   */
  async #attempt(
    slot: Slot,
    permit: Permit,
    request: ChatRequest,
    call: BackendCall,
  ): Promise<Begun | UpstreamError> {
    const { now, onAttempt } = this.#options;
    const startedAt = now();
    let firstEventMs: number | null = null;
    const end = (
      outcome: "success" | "aborted" | "failed",
      error: unknown = null,
    ) => {
      const isAborted = outcome === "aborted" || call.signal.aborted;
      const fault = !isAborted && error instanceof UpstreamError ? error : null;
      if (fault?.rule.isLimit) {
        const waitMs = fault.retryAfterMs ?? LIMITED_MS_DEFAULT;
        slot.limitedUntilMs = now() + waitMs;
      }
      permit.report(
        outcome === "success" ? outcome : fault?.rule.result ?? "ignored",
      );
      onAttempt?.({
        requestId: call.requestId,
        backend: slot.backend.name,
        outcome: outcome === "success"
          ? outcome
          : fault?.fault ?? (isAborted ? "aborted" : "internal"),
        durationMs: now() - startedAt,
        firstEventMs,
        error,
      });
    };
    const iterator = slot.backend.complete(request, call)
      [Symbol.asyncIterator]();
    try {
      const step = await iterator.next();
      if (step.done) throw truncatedAnswer("Answer without any event");
      firstEventMs = now() - startedAt;
      permit.begun();
      return { first: step.value, iterator, end };
    } catch (error) {
      const isAborted = call.signal.aborted;
      end("failed", error);
      if (isAborted || !(error instanceof UpstreamError)) throw error;
      return error;
    }
  }

  /** The backends in the order in which to try them. */
  #candidates(): readonly Slot[] {
    const nowMs = this.#options.now();
    return orderByWeight(this.#slots, this.#options.random).sort((a, b) =>
      Number(nowMs < a.limitedUntilMs) - Number(nowMs < b.limitedUntilMs)
    );
  }

  /** Whether one more retry is within the budget; if so it is taken. */
  #takeRetry(): boolean {
    if (this.#retriesLeft < 1) return false;
    this.#retriesLeft -= 1;
    return true;
  }

  #unavailable(): ApiError {
    const waitMs = Math.min(...this.#slots.map((slot) => slot.breaker.waitMs));
    return new ApiError(
      "service_unavailable",
      "No model server is available for this model at the moment",
      { retryAfterMs: Math.max(UNAVAILABLE_MS_MIN, Math.ceil(waitMs)) },
    );
  }
}

/**
 * By preference, and among equals at random, so that each is first as often as its
 * weight says. Weights 3 and 1 are first in 75 % and 25 %.
 */
export function orderByWeight<T extends PoolBackend>(
  backends: readonly T[],
  random: () => number,
): T[] {
  if (backends.length < 2) return [...backends];
  // Exponentially distributed arrival times: the smallest of them is that of i
  // with probability weight_i / sum, and so on for the rest.
  return backends
    .map((each) => ({ each, arrival: -Math.log(1 - random()) / each.weight }))
    .sort((a, b) =>
      a.each.preference - b.each.preference || a.arrival - b.arrival
    )
    .map(({ each }) => each);
}

/** Resolves after `ms`, or rejects with the signal's reason when that aborts first. */
export type Sleep = (ms: number, signal: AbortSignal) => Promise<void>;

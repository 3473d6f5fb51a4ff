import type { BackendConfig } from "@gateway/shared/models/catalog";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Usage } from "@gateway/shared/openai/completion";
import { Answer, type CompletionCall } from "./answer.ts";
import { UpstreamError, type UpstreamFault } from "./errors.ts";
import type { OpenAiBackend } from "./openai.ts";

/** Backends tried for one request. */
const ATTEMPTS_MAX = 3;
/** The pause before the same backend is tried again: long enough for a proxy to restart, too short to be noticed. */
const RETRY_DELAY_MS_MIN = 50;
const RETRY_DELAY_MS_MAX = 150;
/**
 * How much each request adds to the retry budget, and its maximum. Without a budget,
 * retrying every request would double the load at the worst moment.
 */
const RETRIES_PER_REQUEST = 0.1;
const RETRIES_MAX = 5;
const UNAVAILABLE_MS_MIN = 1_000;

/** A backend of the pool. */
export type PoolBackend = Pick<OpenAiBackend, "complete" | "close"> & {
  readonly config: Pick<BackendConfig, "name" | "preference" | "weight">;
};

/** One attempt that has ended. */
export interface AttemptReport {
  requestId: string;
  /** Name of the backend. */
  backend: string;
  /** `internal`: an error of this worker. */
  outcome: "success" | "aborted" | "internal" | UpstreamFault;
  /** From the request to the end of the answer, or to the failure. */
  durationMs: number;
  /** From the request to the first token; null if there was none. */
  firstTokenMs: number | null;
  /** For the log: the error that ended it; null for a success. */
  error: unknown;
}

/** Options of {@link BackendPool}. */
export interface BackendPoolOptions {
  /** At least one. */
  backends: readonly PoolBackend[];
  now: MonotonicNow;
  /** Uniform in [0, 1). */
  random: () => number;
  /** Resolves after `ms`, or rejects if the signal aborts first. */
  sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  /** For metrics and logs. Must not throw. */
  onAttempt: (report: AttemptReport) => void;
}

/** A backend and its state in the pool. */
interface Slot {
  backend: PoolBackend;
  breaker: CircuitBreaker;
  /** Until then the server asked not to be called, because of a limit or overload. */
  limitedUntilMs: number;
}

interface Failure {
  slot: Slot;
  error: UpstreamError;
}

/**
 * The backends of one model. If an attempt fails before the client has received any of
 * it, the next backend is tried or, if there is only one, the same one again after a
 * moment, within the retry budget. Once lines have been passed on, nothing is
 * repeated, so that the client receives a prefix of one answer.
 *
 * Circuit breakers keep requests away from backends that keep failing; if all of them
 * are open, the request fails at once with `service_unavailable`. Backends that
 * reported a rate limit or overload are tried last until their wait is over.
 */
export class BackendPool {
  readonly #options: BackendPoolOptions;
  readonly #slots: readonly Slot[];
  #retriesLeft = RETRIES_MAX;

  constructor(options: BackendPoolOptions) {
    this.#options = options;
    this.#slots = options.backends.map((backend) => ({
      backend,
      breaker: new CircuitBreaker(options.now),
      limitedUntilMs: -Infinity,
    }));
  }

  /** By backend name, for metrics. */
  breakerStates(): ReadonlyMap<string, BreakerState> {
    return new Map(
      this.#slots.map((slot) => [slot.backend.config.name, slot.breaker.state]),
    );
  }

  /** Closes the idle connections of all backends. */
  close(): void {
    for (const { backend } of this.#slots) backend.close();
  }

  /** Runs a request until an answer is complete. Throws an `UpstreamError`, or any error once the signal aborts. */
  async complete(
    request: ChatRequest,
    call: CompletionCall,
  ): Promise<Usage> {
    call.signal.throwIfAborted();
    this.#retriesLeft = Math.min(
      RETRIES_MAX,
      this.#retriesLeft + RETRIES_PER_REQUEST,
    );
    const failures: Failure[] = [];
    const attempt = (slot: Slot) =>
      this.#attempt(slot, request, call, failures);
    for (const slot of this.#candidates()) {
      if (failures.length === ATTEMPTS_MAX) break;
      const usage = await attempt(slot);
      if (usage !== null) return usage;
    }
    const [only, ...others] = failures;
    if (only === undefined) throw this.#unavailable();
    const canRetry = others.length === 0 && only.error.remedy === "again";
    if (canRetry && this.#retriesLeft >= 1) {
      this.#retriesLeft -= 1;
      // Jitter: requests that failed together must not be retried together.
      const spreadMs = RETRY_DELAY_MS_MAX - RETRY_DELAY_MS_MIN;
      const { random, sleep } = this.#options;
      await sleep(RETRY_DELAY_MS_MIN + random() * spreadMs, call.signal);
      const usage = await attempt(only.slot);
      if (usage !== null) return usage;
    }
    // The error of a limit says when to retry; otherwise the last error is returned.
    const limited = failures.find(({ error }) => error.remedy === "later");
    throw (limited ?? failures.at(-1) ?? only).error;
  }

  /**
   * Tries a backend. Returns null if its breaker is open, or if another attempt may
   * help, then with the error in `failures`; throws any other error. Reports to the
   * breaker only at the end, because an answer that breaks off is a failure.
   */
  async #attempt(
    slot: Slot,
    request: ChatRequest,
    call: CompletionCall,
    failures: Failure[],
  ): Promise<Usage | null> {
    const { breaker } = slot;
    const generation = breaker.enter();
    if (generation === null) return null;
    const { now, onAttempt } = this.#options;
    const startedAt = now();
    let firstTokenMs: number | null = null;
    const answer = new Answer(request, call, () => {
      firstTokenMs = now() - startedAt;
      breaker.begun(generation);
    });
    const report = (outcome: AttemptReport["outcome"], error: unknown) =>
      onAttempt({
        requestId: call.requestId,
        backend: slot.backend.config.name,
        outcome,
        durationMs: now() - startedAt,
        firstTokenMs,
        error,
      });
    try {
      const usage = await slot.backend.complete(answer);
      answer.end(usage);
      breaker.end(generation, "success");
      report("success", null);
      return usage;
    } catch (error) {
      const { aborted } = call.signal;
      const failure = error instanceof UpstreamError && !aborted ? error : null;
      breaker.end(generation, failure === null ? "ignored" : resultOf(failure));
      report(failure?.fault ?? (aborted ? "aborted" : "internal"), error);
      if (failure?.remedy === "later") {
        slot.limitedUntilMs = now() + (failure.retryAfterMs ?? 0);
      }
      const canRepeat = !answer.hasSent && failure?.remedy !== "none";
      if (failure === null || !canRepeat) throw error;
      failures.push({ slot, error: failure });
      return null;
    }
  }

  /** The backends in the order in which to try them. */
  #candidates(): readonly Slot[] {
    const nowMs = this.#options.now();
    return orderByWeight(this.#slots, this.#options.random).sort((a, b) =>
      Number(nowMs < a.limitedUntilMs) - Number(nowMs < b.limitedUntilMs)
    );
  }

  #unavailable(): UpstreamError {
    const waitMs = Math.min(...this.#slots.map((slot) => slot.breaker.waitMs));
    return new UpstreamError("unreachable", {
      code: "service_unavailable",
      message: "No model server is available for this model at the moment",
      retryAfterMs: Math.max(UNAVAILABLE_MS_MIN, Math.ceil(waitMs)),
    });
  }
}

/**
 * Orders by preference, and among equals at random in proportion to their weights:
 * backends with the weights 3 and 1 are first in 75 % and 25 % of the cases.
 */
export function orderByWeight<
  T extends { backend: { config: { preference: number; weight: number } } },
>(slots: readonly T[], random: () => number): T[] {
  // Exponentially distributed arrival times: the smallest of them is that of i
  // with probability weight_i / sum, and so on for the rest.
  return slots
    .map((slot) => ({ slot, ...slot.backend.config, dice: 1 - random() }))
    .map((each) => ({ ...each, arrival: -Math.log(each.dice) / each.weight }))
    .sort((a, b) => a.preference - b.preference || a.arrival - b.arrival)
    .map(({ slot }) => slot);
}

/**
 * The score at which a breaker opens. A failure adds 2 to it, a success subtracts 1:
 * five failures in a row open it, and so does, in time, a failure rate above one third.
 */
const SCORE_MAX = 10;
/** How long it stays open at first; doubles with each failed probe. */
const OPEN_MS = 1_000;
const OPEN_MS_MAX = 30_000;

/** `half-open`: attempts run as probes, one at a time, to find out whether the backend has recovered. */
export type BreakerState = "closed" | "open" | "half-open";

/** `ignored`: the attempt shows nothing about the health of the server. */
export type AttemptResult = "success" | "failure" | "ignored";

/** The result to report to the breaker. A refused request proves that the server is healthy. */
function resultOf({ fault, remedy }: UpstreamError): AttemptResult {
  if (fault === "request") return "success";
  return remedy === "later" ? "ignored" : "failure";
}

/**
 * Keeps attempts away from a backend that fails. Closed, it permits all. After too
 * many failures it is open and permits none for a while, then probes, of which the
 * first to end closes it or opens it for twice as long. The first token of a probe
 * closes nothing, because an answer that has begun may still break off.
 */
export class CircuitBreaker {
  readonly #now: MonotonicNow;
  /** Zero or more, while it is closed. */
  #score = 0;
  /** A probe has not brought its first token yet. */
  #isProbing = false;
  /** How long it stays open; 0 while it is closed. */
  #openMs = 0;
  #openUntilMs = 0;
  /** Incremented whenever it opens or closes. Attempts from before then no longer count. */
  #generation = 0;

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  get state(): BreakerState {
    if (this.#openMs === 0) return "closed";
    return this.#now() < this.#openUntilMs ? "open" : "half-open";
  }

  /** Milliseconds until an attempt is permitted. */
  get waitMs(): number {
    // How long the probe will take is unknown.
    if (this.#isProbing) return this.#openMs;
    if (this.#openMs === 0) return 0;
    return Math.max(0, this.#openUntilMs - this.#now());
  }

  /** Begins an attempt. Returns the generation to report it with, or null if none is permitted now. */
  enter(): number | null {
    if (this.waitMs > 0) return null;
    this.#isProbing = this.#openMs > 0;
    return this.#generation;
  }

  /** The first token has arrived: after a probe the next one may start, however long the answer takes. */
  begun(generation: number): void {
    if (generation === this.#generation) this.#isProbing = false;
  }

  /** Must be called once for each attempt, at its end. */
  end(generation: number, result: AttemptResult): void {
    this.begun(generation);
    if (generation !== this.#generation || result === "ignored") return;
    const hasFailed = result === "failure";
    if (this.#openMs > 0) {
      this.#setOpen(hasFailed ? Math.min(this.#openMs * 2, OPEN_MS_MAX) : 0);
      return;
    }
    this.#score = Math.max(0, this.#score + (hasFailed ? 2 : -1));
    if (this.#score >= SCORE_MAX) this.#setOpen(OPEN_MS);
  }

  /** Opens the breaker for this long; 0 closes it. */
  #setOpen(ms: number): void {
    this.#generation += 1;
    this.#score = 0;
    this.#openMs = ms;
    this.#openUntilMs = this.#now() + ms;
  }
}

import type { MonotonicNow } from "@gateway/shared/process/clock";
import { UpstreamError } from "./errors.ts";

/** What an attempt at a model server may be waiting for. */
export type Phase = "connect" | "firstToken" | "betweenTokens" | "afterFinish";

/**
 * Ends one attempt when its signal aborts or a deadline passes, by closing
 * whatever the attempt is waiting on. One timer serves all deadlines: moving a
 * deadline ahead, which happens for every token, only writes a number.
 */
export class AttemptDeadlines {
  readonly #now: MonotonicNow;
  readonly #signal: AbortSignal;
  readonly #totalAt: number;
  #phase: Phase = "connect";
  #phaseAt = Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  /** Why the attempt is over, or null. */
  #end: { reason: unknown } | null = null;
  #close: () => void = () => {};

  /** Starts the attempt, which has `totalMs` in all. */
  constructor(now: MonotonicNow, signal: AbortSignal, totalMs: number) {
    this.#now = now;
    this.#signal = signal;
    this.#totalAt = now() + totalMs;
    if (signal.aborted) this.#onAbort();
    else {
      signal.addEventListener("abort", this.#onAbort, { once: true });
      this.#schedule();
    }
  }

  /** From now on, `phase` must be over within `ms`; replaces the phase before. */
  arm(phase: Phase, ms: number): void {
    this.#phase = phase;
    this.#phaseAt = this.#now() + ms;
    if (this.#end === null) this.#schedule();
  }

  /** Suspends the phase while nobody reads. Only the total bound runs on. */
  rest(): void {
    this.#phaseAt = Infinity;
  }

  /** Has `close` called once when the attempt ends, or at once if it has ended. Replaces the function before. */
  onEnd(close: () => void): void {
    this.#close = close;
    if (this.#end !== null) close();
  }

  /** Throws the signal's reason or an `upstream_timeout` if the attempt is over. */
  throwIfEnded(): void {
    // A stream without a pause may delay the timer.
    if (this.#now() >= this.#totalAt) this.#onTimer();
    if (this.#end !== null) throw this.#end.reason;
  }

  /** Stops the timer and lets the signal go. Must be called. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#timerAt = -Infinity;
    this.#signal.removeEventListener("abort", this.#onAbort);
  }

  #onAbort = () => this.#endWith(this.#signal.reason);

  #onTimer = () => {
    this.#timerAt = Infinity;
    if (this.#end !== null) return;
    if (this.#now() < Math.min(this.#phaseAt, this.#totalAt)) {
      return this.#schedule();
    }
    const isTotal = this.#totalAt <= this.#phaseAt;
    const cause = new Error(
      `Deadline passed: ${isTotal ? "total" : this.#phase}`,
    );
    const fault = isTotal ? "deadline" : "timeout";
    this.#endWith(new UpstreamError(fault, { cause }));
  };

  #schedule(): void {
    const at = Math.min(this.#phaseAt, this.#totalAt);
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    const waitMs = Math.max(0, Math.ceil(at - this.#now()));
    this.#timer = setTimeout(this.#onTimer, waitMs);
  }

  #endWith(reason: unknown): void {
    if (this.#end !== null) return;
    this.#end = { reason };
    this.#close();
  }
}

import type { MonotonicNow } from "@gateway/shared/process/clock";
import { UpstreamError } from "./errors.ts";

/**
 * Ends one attempt when its signal aborts or a deadline passes, by closing the
 * connection that the attempt waits for. All deadlines share one timer: extending a
 * deadline, which happens for every token, only writes a number.
 */
export class AttemptDeadlines {
  readonly #now: MonotonicNow;
  readonly #signal: AbortSignal;
  readonly #totalAt: number;
  /** What the attempt is waiting for, for the log. */
  #phase = "";
  #phaseAt = Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  /** Why the attempt is over, or null. */
  #end: { reason: unknown } | null = null;
  #close: () => void = () => {};

  /** Starts the attempt, which may take `totalMs` in total. */
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

  /** Starts `phase`, which must end within `ms`, and replaces the previous phase. */
  arm(phase: string, ms: number): void {
    this.#phase = phase;
    this.#phaseAt = this.#now() + ms;
    if (this.#end === null) this.#schedule();
  }

  /** Suspends the phase while the response is not read. The total deadline remains. */
  rest(): void {
    this.#phaseAt = Infinity;
  }

  /** Sets the function that is called once when the attempt ends, or at once if it has ended. */
  onEnd(close: () => void): void {
    this.#close = close;
    if (this.#end !== null) close();
  }

  /** Throws the signal's reason or an `upstream_timeout` if the attempt is over. */
  throwIfEnded(): void {
    // A stream that never pauses may delay the timer.
    if (this.#now() >= this.#totalAt) this.#onTimer();
    if (this.#end !== null) throw this.#end.reason;
  }

  /** Stops the timer and removes the listener of the signal. Must be called. */
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

import type { MonotonicNow } from "../process/clock.ts";
import { UpstreamError } from "./errors.ts";

/** Ends one attempt when its signal aborts or a deadline passes. One timer: a token only writes a number. */
export class AttemptDeadlines {
  readonly #end = new AbortController();
  /** Aborts when the attempt ends: with the reason of the call's signal, or with an `upstream_timeout`. */
  readonly signal = this.#end.signal;
  readonly #totalAt: number;
  #phase = "";
  #phaseAt = Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;

  constructor(
    readonly now: MonotonicNow,
    readonly callSignal: AbortSignal,
    totalMs: number,
  ) {
    this.#totalAt = now() + totalMs;
    if (callSignal.aborted) this.#onAbort();
    else {
      callSignal.addEventListener("abort", this.#onAbort, { once: true });
      this.#schedule();
    }
  }

  /** Starts `phase`, which must end within `ms`, and replaces the previous phase. */
  arm(phase: string, ms: number): void {
    this.#phase = phase;
    this.#phaseAt = this.now() + ms;
    if (!this.signal.aborted) this.#schedule();
  }

  /** Suspends the phase while the response is not read. The total deadline remains. */
  rest(): void {
    this.#phaseAt = Infinity;
  }

  throwIfEnded(): void {
    // A stream that never pauses may delay the timer.
    if (this.now() >= this.#totalAt) this.#onTimer();
    this.signal.throwIfAborted();
  }

  /** Stops the timer and removes the listener of the signal. Must be called. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#timerAt = -Infinity;
    this.callSignal.removeEventListener("abort", this.#onAbort);
  }

  #onAbort = () => this.#end.abort(this.callSignal.reason);

  #onTimer = () => {
    this.#timerAt = Infinity;
    if (this.signal.aborted) return;
    if (this.now() < Math.min(this.#phaseAt, this.#totalAt)) {
      return this.#schedule();
    }
    const isTotal = this.#totalAt <= this.#phaseAt;
    const cause = new Error(
      `Deadline passed: ${isTotal ? "total" : this.#phase}`,
    );
    const fault = isTotal ? "deadline" : "timeout";
    this.#end.abort(new UpstreamError(fault, { cause }));
  };

  #schedule(): void {
    const at = Math.min(this.#phaseAt, this.#totalAt);
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    const waitMs = Math.max(0, Math.ceil(at - this.now()));
    this.#timer = setTimeout(this.#onTimer, waitMs);
  }
}

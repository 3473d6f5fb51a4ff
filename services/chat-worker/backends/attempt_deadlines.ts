import type { MonotonicNow } from "@gateway/shared/process/clock";
import { UpstreamError } from "./errors.ts";

/** What an attempt at a model server may be waiting for. */
export type Phase =
  | "connect"
  | "firstToken"
  | "betweenTokens"
  | "afterFinish"
  | "total";

/**
 * Ends one attempt when its signal aborts or a deadline passes, by closing
 * whatever the attempt is waiting on. One timer serves all deadlines: moving a
 * deadline ahead, which happens for every token, only writes a number.
 */
export class AttemptDeadlines {
  /** The deadline that ended the attempt, or null. */
  expired: Phase | null = null;
  readonly #now: MonotonicNow;
  readonly #signal: AbortSignal;
  readonly #totalAt: number;
  #phase: Phase = "total";
  #phaseAt = Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerAt = Infinity;
  #isOver = false;
  #reason: unknown;
  #close: () => void = () => {};

  /** Starts the attempt, which has `totalMs` in all. */
  constructor(now: MonotonicNow, signal: AbortSignal, totalMs: number) {
    this.#now = now;
    this.#signal = signal;
    this.#totalAt = now() + totalMs;
    if (signal.aborted) this.#end(signal.reason);
    else {
      signal.addEventListener("abort", this.#onAbort, { once: true });
      this.#schedule(this.#totalAt);
    }
  }

  /** From now on, `phase` must be over within `ms`; replaces the phase before. */
  arm(phase: Phase, ms: number): void {
    this.#phase = phase;
    this.#phaseAt = this.#now() + ms;
    if (!this.#isOver) this.#schedule(Math.min(this.#phaseAt, this.#totalAt));
  }

  /** Nothing is being waited for, because the consumer is not reading. Only the total bound runs on. */
  rest(): void {
    this.#phaseAt = Infinity;
  }

  /** Calls `close` once when the attempt ends; replaces the function before. At once if it has ended. */
  onEnd(close: () => void): void {
    this.#close = close;
    if (this.#isOver) close();
  }

  /** Throws the signal's reason or an `upstream_timeout` if the attempt is over. */
  throwIfEnded(): void {
    // Data that never stops may hold the timer up.
    if (!this.#isOver && this.#now() >= this.#totalAt) this.#onTimer();
    if (this.#isOver) throw this.#reason;
  }

  /** Stops the timer and lets the signal go. Must be called. */
  dispose(): void {
    clearTimeout(this.#timer);
    this.#timerAt = -Infinity;
    this.#signal.removeEventListener("abort", this.#onAbort);
  }

  #onAbort = () => this.#end(this.#signal.reason);

  #onTimer = () => {
    this.#timerAt = Infinity;
    const at = Math.min(this.#phaseAt, this.#totalAt);
    if (this.#now() < at) return this.#schedule(at);
    this.expired = this.#totalAt <= this.#phaseAt ? "total" : this.#phase;
    this.#end(
      new UpstreamError(this.expired === "total" ? "deadline" : "timeout", {
        cause: new Error(`Deadline passed: ${this.expired}`),
      }),
    );
  };

  #schedule(at: number): void {
    if (at >= this.#timerAt) return;
    clearTimeout(this.#timer);
    this.#timerAt = at;
    const waitMs = Math.max(0, Math.ceil(at - this.#now()));
    this.#timer = setTimeout(this.#onTimer, waitMs);
  }

  #end(reason: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reason = reason;
    this.#close();
  }
}

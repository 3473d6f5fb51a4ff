/** The deadlines of one call to a model server. */
import type { MonotonicNow } from "../../process/clock.ts";
import type { Deadlines, Timed } from "../../process/deadlines.ts";
import { UpstreamError } from "./errors.ts";

/** What the deadlines of one attempt are made of. */
export interface AttemptDeadlinesOptions {
  /** Watches all attempts of a server with one timer. */
  deadlines: Pick<Deadlines, "add" | "remove">;
  now: MonotonicNow;
  /** Aborts when the answer is no longer needed. */
  callSignal: AbortSignal;
  /** How long the whole attempt may take. */
  totalMs: number;
}

/**
 * Ends one attempt when its signal aborts or a deadline passes. A token only writes a
 * number.
 */
export class AttemptDeadlines implements Timed, EventListenerObject {
  /** Why it has ended: the reason of the call's signal, or an `upstream_timeout`. */
  #ending: { reason: unknown } | null = null;
  #onEnd: (() => void) | null = null;
  readonly deadlines: AttemptDeadlinesOptions["deadlines"];
  readonly now: MonotonicNow;
  readonly callSignal: AbortSignal;
  readonly #totalAt: number;
  #phase = "";
  #phaseAt = Infinity;

  /** Starts the clock; after `totalMs` the attempt ends in any case. */
  constructor(
    { deadlines, now, callSignal, totalMs }: AttemptDeadlinesOptions,
  ) {
    this.deadlines = deadlines;
    this.now = now;
    this.callSignal = callSignal;
    this.#totalAt = now() + totalMs;
    if (callSignal.aborted) this.handleEvent();
    else {
      callSignal.addEventListener("abort", this, { once: true });
      deadlines.add(this);
    }
  }

  get expiresAtMs(): number {
    return Math.min(this.#phaseAt, this.#totalAt);
  }

  /** Starts `phase`, which must end within `ms`, and replaces the previous phase. */
  arm(phase: string, ms: number): void {
    this.#phase = phase;
    this.#phaseAt = this.now() + ms;
  }

  /** Suspends the phase while the response is not read. The total deadline remains. */
  rest(): void {
    this.#phaseAt = Infinity;
  }

  /**
   * Calls `run` when the attempt ends, and no longer what an earlier call of this
   * method named; calls it at once if the attempt has ended.
   */
  onEnd(run: () => void): void {
    this.#onEnd = run;
    if (this.#ending !== null) run();
  }

  throwIfEnded(): void {
    // A stream that never pauses may delay the timer.
    if (this.now() >= this.#totalAt) this.expire();
    if (this.#ending !== null) throw this.#ending.reason;
  }

  /** Ends the attempt because its earliest deadline has passed. */
  expire(): void {
    const isTotal = this.#totalAt <= this.#phaseAt;
    const phase = isTotal ? "total" : this.#phase;
    const cause = new Error(`Deadline passed: ${phase}`);
    const fault = isTotal ? "deadline" : "timeout";
    this.#finish(new UpstreamError(fault, { cause }));
  }

  /** Stops watching the deadlines and the signal. Must be called. */
  dispose(): void {
    this.deadlines.remove(this);
    this.callSignal.removeEventListener("abort", this);
  }

  /** The call's signal has aborted. */
  handleEvent(): void {
    this.#finish(this.callSignal.reason);
  }

  #finish(reason: unknown): void {
    if (this.#ending !== null) return;
    this.#ending = { reason };
    this.#onEnd?.();
  }
}

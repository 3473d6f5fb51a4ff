/** Whether a backend is fit to be asked, by how its last attempts have ended. */
import type { MonotonicNow } from "../process/clock.ts";

/**
 * A failure adds 2 to the score, a success subtracts 1: five failures in a row open the
 * breaker.
 */
const SCORE_MAX = 10;
/** How long it stays open at first; doubles with each failed probe. */
const OPEN_MS = 1_000;
const OPEN_MS_MAX = 30_000;

/**
 * `half-open`: the next attempt is a probe, to find out whether the backend has
 * recovered.
 */
export type BreakerState = "closed" | "open" | "half-open";

/**
 * The outcomes that prove the health of a server, as a refused request does, and those
 * that prove nothing.
 */
const HEALTHY = /^(success|request)$/;
const UNCLEAR =
  /^(aborted|internal|rate_limited|overloaded|unsupported|no_endpoint)$/;

/**
 * Keeps attempts away from a backend that fails. After too many failures it is open
 * and permits none for a while, then one as a probe, and another once its answer has
 * begun. The first to end closes it or opens it for twice as long: a first token
 * closes nothing, because an answer that has begun may still break off.
 */
export class CircuitBreaker {
  #score = 0;
  /** How long it stays open; 0 while it is closed. */
  #openMs = 0;
  /** None is permitted before. */
  #nextAtMs = -Infinity;
  /** When it opened or closed: attempts from before no longer count. */
  #changedAtMs = -Infinity;

  constructor(readonly now: MonotonicNow) {}

  get state(): BreakerState {
    if (this.#openMs === 0) return "closed";
    return this.waitMs > 0 ? "open" : "half-open";
  }

  get waitMs(): number {
    return Math.max(0, this.#nextAtMs - this.now());
  }

  /**
   * Begins an attempt. Returns the time to report it with, or null if none is permitted
   * now.
   */
  enter(): number | null {
    const nowMs = this.now();
    if (nowMs < this.#nextAtMs) return null;
    this.#nextAtMs = nowMs + this.#openMs;
    return nowMs;
  }

  /**
   * The first token has arrived: after a probe the next one may start, however long the
   * answer takes.
   */
  begun(enteredAtMs: number): void {
    // While it is closed, the next one may start in any case.
    if (this.#openMs === 0 || enteredAtMs <= this.#changedAtMs) return;
    this.#nextAtMs = this.now();
  }

  /**
   * Must be called once for each attempt, at its end. The failure of a probe that
   * somebody has sent on purpose opens it alone.
   */
  end(
    enteredAtMs: number,
    outcome: string,
    { isProbe = false }: { isProbe?: boolean } = {},
  ): void {
    this.begun(enteredAtMs);
    if (enteredAtMs <= this.#changedAtMs || UNCLEAR.test(outcome)) return;
    const hasFailed = !HEALTHY.test(outcome);
    this.#score = Math.max(0, this.#score + (hasFailed ? 2 : -1));
    if (this.#openMs > 0) {
      this.#setOpen(hasFailed ? Math.min(this.#openMs * 2, OPEN_MS_MAX) : 0);
    } else if (this.#score >= SCORE_MAX || isProbe && hasFailed) {
      this.#setOpen(OPEN_MS);
    }
  }

  /** Opens the breaker for this long; 0 closes it. */
  #setOpen(ms: number): void {
    this.#score = 0;
    this.#openMs = ms;
    this.#changedAtMs = this.now();
    this.#nextAtMs = this.#changedAtMs + ms;
  }
}

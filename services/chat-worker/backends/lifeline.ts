import type { MonotonicNow } from "@gateway/shared/process/clock";
import { UpstreamError } from "./upstream_error.ts";

/** What an attempt at a model server may be waiting for. */
export type Phase =
  | "connect"
  | "firstToken"
  | "betweenTokens"
  | "afterFinish"
  | "total";

/** What {@link createLifeline} needs. */
export interface LifelineOptions {
  now: MonotonicNow;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
  /** Bound of the whole attempt. */
  totalMs: number;
}

/**
 * Ends one attempt when its signal aborts or a deadline passes, by closing
 * whatever the attempt is waiting on. One timer serves all deadlines: moving a
 * deadline ahead, which happens for every token, only writes a number.
 */
export interface Lifeline {
  /** Why the attempt is over: the signal's reason or an `upstream_timeout`; undefined while it lives. */
  readonly reason: unknown;
  /** The deadline that ended it, or null. */
  readonly expired: Phase | null;
  /** From now on, `phase` must be over within `ms`; replaces the phase before. */
  arm(phase: Phase, ms: number): void;
  /** Nothing is being waited for, because the consumer is not reading. Only the total bound runs on. */
  rest(): void;
  /** Calls `close` once when the attempt ends; replaces the function before. At once if it has ended. */
  onEnd(close: () => void): void;
  /** Throws {@link Lifeline.reason} if the attempt is over. */
  throwIfEnded(): void;
  /** Stops the timer and lets the signal go. Must be called. */
  dispose(): void;
}

/** Starts the lifeline of an attempt. */
export function createLifeline(options: LifelineOptions): Lifeline {
  const { now, signal } = options;
  const totalAt = now() + options.totalMs;
  let phase: Phase = "total";
  let phaseAt = Infinity;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let timerAt = Infinity;
  let isOver = false;
  let reason: unknown;
  let expired: Phase | null = null;
  let close: () => void = () => {};

  const end = (why: unknown) => {
    if (isOver) return;
    isOver = true;
    reason = why;
    close();
  };

  const onAbort = () => end(signal.reason);

  const schedule = (at: number) => {
    if (at >= timerAt) return;
    clearTimeout(timer);
    timerAt = at;
    timer = setTimeout(onTimer, Math.max(0, Math.ceil(at - now())));
  };

  const onTimer = () => {
    timerAt = Infinity;
    const at = Math.min(phaseAt, totalAt);
    if (now() < at) return schedule(at);
    expired = totalAt <= phaseAt ? "total" : phase;
    end(
      new UpstreamError(expired === "total" ? "deadline" : "timeout", {
        cause: new Error(`Deadline passed: ${expired}`),
      }),
    );
  };

  if (signal.aborted) onAbort();
  else {
    signal.addEventListener("abort", onAbort, { once: true });
    schedule(totalAt);
  }

  return {
    get reason() {
      return reason;
    },
    get expired() {
      return expired;
    },
    arm(next, ms) {
      phase = next;
      phaseAt = now() + ms;
      if (!isOver) schedule(Math.min(phaseAt, totalAt));
    },
    rest() {
      phaseAt = Infinity;
    },
    onEnd(next) {
      close = next;
      if (isOver) close();
    },
    throwIfEnded() {
      // Data that never stops may hold the timer up.
      if (!isOver && now() >= totalAt) onTimer();
      if (isOver) throw reason;
    },
    dispose() {
      clearTimeout(timer);
      timerAt = -Infinity;
      signal.removeEventListener("abort", onAbort);
    },
  };
}

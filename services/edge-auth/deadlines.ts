import type { MonotonicNow } from "@gateway/shared/clock";

/** Something that must not last beyond a moment. Moving `at` moves the deadline. */
export interface Deadline {
  /** Monotonic milliseconds. */
  at: number;
  readonly expire: () => void;
}

/** Many deadlines on one timer. */
export interface Deadlines {
  /** The clock that `at` is read from. */
  readonly now: MonotonicNow;
  /** Calls `expire` once, at the first tick after `inMs`, unless removed before. */
  add(inMs: number, expire: () => void): Deadline;
  /** Forgets a deadline; one that has expired is forgotten already. */
  remove(deadline: Deadline): void;
  /** Stops the timer and forgets all deadlines without calling them. */
  [Symbol.dispose](): void;
}

/** How late a deadline may be. Ours are seconds, so a quarter of one does no harm. */
const TICK_MS = 250;

/**
 * Makes {@link Deadlines} that share one timer, which runs only while there are
 * any. For deadlines that every request sets and almost none reaches: setting and
 * clearing a timer of its own costs a request 4 us, this costs 1 (Deno 2.9.6).
 * `expire` must not throw.
 */
export function createDeadlines(
  now: MonotonicNow,
  tickMs: number = TICK_MS,
): Deadlines {
  const pending = new Set<Deadline>();
  let timer: ReturnType<typeof setTimeout> | null = null;

  const tick = () => {
    timer = null;
    const time = now();
    const due: Deadline[] = [];
    for (const deadline of pending) {
      if (deadline.at <= time) due.push(deadline);
    }
    // Called after the walk: one that adds another must not lengthen it for ever,
    // and one that removes another must be obeyed.
    for (const deadline of due) {
      if (pending.delete(deadline)) deadline.expire();
    }
    if (pending.size > 0) timer ??= setTimeout(tick, tickMs);
  };

  return {
    now,
    add(inMs, expire) {
      const deadline: Deadline = { at: now() + inMs, expire };
      pending.add(deadline);
      timer ??= setTimeout(tick, tickMs);
      return deadline;
    },
    remove(deadline) {
      pending.delete(deadline);
    },
    [Symbol.dispose]() {
      pending.clear();
      if (timer !== null) clearTimeout(timer);
      timer = null;
    },
  };
}

import type { MonotonicNow } from "./clock.ts";

/** Something that must be finished at a certain time. */
export interface Timed {
  readonly expiresAtMs: number;
  /** Called once, at or shortly after `expiresAtMs`, unless it was removed before. Must not throw. */
  expire(): void;
}

/** A set of deadlines behind a single timer. */
export interface Deadlines {
  readonly size: number;
  /** Its `expiresAtMs` may be moved later; it is looked at when it was due first. */
  add(item: Timed): void;
  remove(item: Timed): void;
  /** Stops the timer and forgets everything. Nothing expires any more. */
  close(): void;
}

/** A timer later than this was held up by this process, not by the other side. */
const STALL_MS = 10;
const GRACE_MAX_MS = 100;
/** A process that cannot keep up for this long has to refuse, whoever is to blame. */
const GRACE_TOTAL_MS = 1_000;

/**
 * Watches many deadlines with one timer. A timer per call or request costs more
 * than the rest of it, and nearly all are cancelled: here adding and removing are
 * set operations, and the timer fires at most once per shortest deadline.
 *
 * When the timer itself comes late, this process was stalled: answers may be
 * waiting in the socket's buffer, and calls may not even have been written. What
 * the stall took is given back before anything expires, again and again while the
 * process is late, so that a burst of requests on one edge does not pass for an
 * outage of the other side.
 */
export function createDeadlines(now: MonotonicNow): Deadlines {
  const items = new Set<Timed>();
  let timer: ReturnType<typeof setTimeout> | null = null;
  let firesAtMs = Infinity;

  const arm = (atMs: number) => {
    if (timer !== null) clearTimeout(timer);
    firesAtMs = atMs;
    timer = setTimeout(fire, Math.max(1, Math.ceil(atMs - now())));
  };
  const fire = () => give(firesAtMs, firesAtMs + GRACE_TOTAL_MS);
  /** Waits as long as this timer was late, unless it was on time or all grace is used up. */
  const give = (dueAtMs: number, endsAtMs: number) => {
    const nowMs = now();
    const lateMs = nowMs - dueAtMs;
    if (lateMs <= STALL_MS || nowMs >= endsAtMs) return sweep();
    const graceMs = Math.min(lateMs, GRACE_MAX_MS);
    timer = setTimeout(() => give(nowMs + graceMs, endsAtMs), graceMs);
  };
  const sweep = () => {
    timer = null;
    firesAtMs = Infinity;
    const nowMs = now();
    let nextMs = Infinity;
    for (const item of items) {
      if (item.expiresAtMs <= nowMs) {
        items.delete(item);
        item.expire();
      } else if (item.expiresAtMs < nextMs) {
        nextMs = item.expiresAtMs;
      }
    }
    if (nextMs < firesAtMs) arm(nextMs);
  };

  return {
    get size() {
      return items.size;
    },
    add(item) {
      items.add(item);
      if (item.expiresAtMs < firesAtMs) arm(item.expiresAtMs);
    },
    remove(item) {
      items.delete(item);
    },
    close() {
      if (timer !== null) clearTimeout(timer);
      timer = null;
      firesAtMs = Infinity;
      items.clear();
    },
  };
}

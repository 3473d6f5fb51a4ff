import type { MonotonicNow } from "./clock.ts";

export interface Timed {
  readonly expiresAtMs: number;
  /**
   * Called once, at or shortly after `expiresAtMs`, unless it was removed before. Must
   * not throw.
   */
  expire(): void;
  /** Set while it is watched: its place, and all stalls before it was added. */
  watched?: { index: number; stalledBeforeMs: number } | undefined;
}

export type Deadlines = ReturnType<typeof createDeadlines>;

/**
 * The timer fires at least this often while any item waits, so that every stall is
 * noticed.
 */
const TICK_MS = 25;
/** A timer later than this means that this process was stalled. */
const STALL_MS = 10;
/**
 * The longest extension of a deadline because of stalls, which a busy machine uses up.
 */
const GRACE_MAX_MS = 1_000;

/**
 * Watches many deadlines with one timer: one for each call would cost more than the
 * rest of it, and nearly all are cancelled. If the timer fires late, this process was
 * stalled, and answers may wait in a socket's buffer: the stall is added to all
 * deadlines, up to `graceMaxMs` each, and due items are checked again after sockets
 * were read.
 */
export function createDeadlines(now: MonotonicNow, graceMaxMs = GRACE_MAX_MS) {
  /** Not a `Map`, for the reason that `LiveMap` gives. */
  const items: Timed[] = [];
  let stalledMs = 0;
  let timer: ReturnType<typeof setTimeout> | null = null;
  let firesAtMs = Infinity;
  let isSecondLook = false;
  let isClosing = false;

  /** False if it is not watched. */
  const drop = (item: Timed): boolean => {
    const { index = -1 } = item.watched ?? {};
    const last = items.at(-1);
    if (items[index] !== item || last === undefined) return false;
    items[index] = last;
    if (last.watched) last.watched.index = index;
    items.pop();
    item.watched = undefined;
    return true;
  };
  const arm = (atMs: number) => {
    if (timer !== null) clearTimeout(timer);
    const nowMs = now();
    firesAtMs = Math.max(nowMs, Math.min(atMs, nowMs + TICK_MS));
    timer = setTimeout(fire, Math.max(1, Math.ceil(firesAtMs - nowMs)));
  };
  const fire = () => {
    timer = null;
    const nowMs = now();
    const lateMs = nowMs - firesAtMs;
    firesAtMs = Infinity;
    const isLate = lateMs > STALL_MS;
    if (isLate) stalledMs += lateMs;
    const due: Timed[] = [];
    let nextMs = Infinity;
    for (const item of items) {
      const { stalledBeforeMs = 0 } = item.watched ?? {};
      const graceMs = Math.min(stalledMs - stalledBeforeMs, graceMaxMs);
      const atMs = item.expiresAtMs + graceMs;
      const isDue = atMs <= nowMs && (!isLate || graceMs === graceMaxMs);
      if (isDue) due.push(item);
      else if (atMs < nextMs) nextMs = atMs;
    }
    isSecondLook = due.length > 0 && !isSecondLook;
    if (isSecondLook) return arm(nowMs);
    due.sort((a, b) => a.expiresAtMs - b.expiresAtMs);
    for (const item of due) {
      if (drop(item)) item.expire();
    }
    if (items.length > 0 && nextMs < firesAtMs) arm(nextMs);
  };
  const close = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    firesAtMs = Infinity;
    items.length = 0;
  };

  return {
    get size(): number {
      return items.length;
    },
    /** Its `expiresAtMs` may change while it waits, which takes effect within 25 ms. */
    add(item: Timed): void {
      drop(item);
      item.watched = { index: items.length, stalledBeforeMs: stalledMs };
      items.push(item);
      if (item.expiresAtMs < firesAtMs) arm(item.expiresAtMs);
    },
    remove(item: Timed): void {
      drop(item);
      if (isClosing && items.length === 0) close();
    },
    /** Stops the timer as soon as no item waits any more. */
    closeWhenIdle(): void {
      isClosing = true;
      if (items.length === 0) close();
    },
    /** Stops the timer and removes all items. Nothing expires any more. */
    close,
  };
}

/** Many deadlines on one timer, which a stall of this process extends. */
import type { MonotonicNow } from "./clock.ts";
import { type LiveMember, LiveSet } from "./maps.ts";

/** Something that ends at a time unless it is removed before: a call, a request. */
export interface Timed extends LiveMember {
  /** On the clock of the {@link Deadlines} that watch it. */
  readonly expiresAtMs: number;
  /**
   * Called once, at or shortly after `expiresAtMs`, unless it was removed before. Must
   * not throw.
   */
  expire(): void;
  /** Set while it is watched: how long the process was stalled before that, in ms. */
  stalledBeforeMs?: number | undefined;
}

/**
 * The timer fires at least this often while any item waits, so that every stall is
 * noticed.
 */
const TICK_MS = 25;
/** A timer later than this means that this process was stalled. */
const STALL_MS = 10;
/** How far stalls may extend a deadline; a busy machine uses all of it. */
const GRACE_MAX_MS = 1_000;

/**
 * Watches many deadlines with one timer: a timer for each call would cost more than the
 * rest of the call, and nearly all are cancelled. If the timer fires late, this process
 * was stalled, and answers may wait in a socket's buffer: the stall is added to all
 * deadlines, up to `graceMaxMs` each, and due items are checked again after sockets
 * were read.
 */
export class Deadlines {
  readonly #now: MonotonicNow;
  readonly #graceMaxMs: number;
  readonly #items = new LiveSet<Timed>();
  #stalledMs = 0;
  #timer: ReturnType<typeof setTimeout> | null = null;
  /** Infinity while no timer runs. */
  #firesAtMs = Infinity;
  /** Whether the due items of the last turn were spared until sockets were read. */
  #isSecondLook = false;
  #isClosing = false;

  /** `graceMaxMs`: 0 for deadlines that no stall extends. */
  constructor(now: MonotonicNow, graceMaxMs = GRACE_MAX_MS) {
    this.#now = now;
    this.#graceMaxMs = graceMaxMs;
  }

  /** How many items are watched. */
  get size(): number {
    return this.#items.size;
  }

  /** Its `expiresAtMs` may change while it waits, which takes effect within 25 ms. */
  add(item: Timed): void {
    item.stalledBeforeMs = this.#stalledMs;
    this.#items.add(item);
    if (item.expiresAtMs < this.#firesAtMs) this.#arm(item.expiresAtMs);
  }

  /** Stops watching an item. Nothing happens if it is not watched. */
  remove(item: Timed): void {
    this.#items.delete(item);
    if (this.#isClosing && this.size === 0) this.close();
  }

  /** Stops the timer as soon as no item waits any more. */
  closeWhenIdle(): void {
    this.#isClosing = true;
    if (this.size === 0) this.close();
  }

  /** Stops the timer and removes all items. Nothing expires any more. */
  close(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#firesAtMs = Infinity;
    this.#items.clear();
  }

  #arm(atMs: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    const nowMs = this.#now();
    this.#firesAtMs = Math.max(nowMs, Math.min(atMs, nowMs + TICK_MS));
    const waitMs = Math.ceil(this.#firesAtMs - nowMs);
    this.#timer = setTimeout(() => this.#fire(), Math.max(1, waitMs));
  }

  #fire(): void {
    this.#timer = null;
    const nowMs = this.#now();
    const lateMs = nowMs - this.#firesAtMs;
    this.#firesAtMs = Infinity;
    const isLate = lateMs > STALL_MS;
    if (isLate) this.#stalledMs += lateMs;
    const { due, nextMs } = this.#examine(nowMs, isLate);
    this.#isSecondLook = due.length > 0 && !this.#isSecondLook;
    if (this.#isSecondLook) return this.#arm(nowMs);
    due.sort((a, b) => a.expiresAtMs - b.expiresAtMs);
    for (const item of due) {
      if (this.#items.delete(item)) item.expire();
    }
    if (this.size > 0 && nextMs < this.#firesAtMs) this.#arm(nextMs);
  }

  /**
   * The items that are due, and when the next of the others is. Right after a stall an
   * item is due only if its grace is used up.
   */
  #examine(nowMs: number, isLate: boolean): { due: Timed[]; nextMs: number } {
    const due: Timed[] = [];
    let nextMs = Infinity;
    for (const item of this.#items) {
      const { stalledBeforeMs = 0 } = item;
      const stalledMs = this.#stalledMs - stalledBeforeMs;
      const graceMs = Math.min(stalledMs, this.#graceMaxMs);
      const atMs = item.expiresAtMs + graceMs;
      const isSpared = isLate && graceMs < this.#graceMaxMs;
      if (atMs <= nowMs && !isSpared) due.push(item);
      else if (atMs < nextMs) nextMs = atMs;
    }
    return { due, nextMs };
  }
}

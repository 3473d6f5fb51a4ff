/**
 * When model servers that are probed have last shown that they answer, to this worker
 * and to the others: what one has seen, no other needs to ask for.
 */
import type { MonotonicNow } from "../process/clock.ts";
import type { UseReport } from "./report.ts";

/** A proof that is older than this is not told: any interval of probes is shorter. */
const TELL_MS_MAX = 3_600_000;

/** The proofs of servers, by {@link idOf} each. */
export class Proofs {
  readonly #now: MonotonicNow;
  #watched: ReadonlySet<string> = new Set();
  readonly #ownAtMs = new Map<string, number>();
  readonly #othersAtMs = new Map<string, number>();

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** Whether no server is probed, so that there is nothing to tell. */
  get isEmpty(): boolean {
    return this.#watched.size === 0;
  }

  /** Keeps the proofs of these servers, and of no others. */
  watch(ids: ReadonlySet<string>): void {
    this.#watched = ids;
    for (const times of [this.#ownAtMs, this.#othersAtMs]) {
      for (const id of times.keys()) if (!ids.has(id)) times.delete(id);
    }
  }

  /** A server has answered this worker. */
  prove(id: string): void {
    if (this.#watched.has(id)) this.#ownAtMs.set(id, this.#now());
  }

  /** How long ago a server has answered any worker; Infinity: nobody knows. */
  agoMs(id: string): number {
    const own = this.#ownAtMs.get(id) ?? -Infinity;
    return this.#now() - Math.max(own, this.#othersAtMs.get(id) ?? -Infinity);
  }

  /** What this worker reports to the others. */
  report(): UseReport["proved"] {
    const nowMs = this.#now();
    return [...this.#ownAtMs].map(([id, atMs]) => ({ id, agoMs: nowMs - atMs }))
      .filter(({ agoMs }) => agoMs < TELL_MS_MAX);
  }

  /** Adds what another worker reports. */
  add(proved: UseReport["proved"]): void {
    for (const { id, agoMs } of proved) {
      if (!this.#watched.has(id)) continue;
      const before = this.#othersAtMs.get(id) ?? -Infinity;
      this.#othersAtMs.set(id, Math.max(before, this.#now() - agoMs));
    }
  }
}

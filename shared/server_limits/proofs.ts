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
  readonly #toldAtMs = new Map<string, number>();

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
    for (const known of [this.#ownAtMs, this.#toldAtMs]) {
      for (const id of known.keys()) if (!ids.has(id)) known.delete(id);
    }
  }

  /** A server has answered this worker. */
  prove(id: string): void {
    if (this.#watched.has(id)) this.#ownAtMs.set(id, this.#now());
  }

  /** How long ago a server has answered any worker; Infinity: nobody knows. */
  agoMs(id: string): number {
    const own = this.#ownAtMs.get(id) ?? -Infinity;
    return this.#now() - Math.max(own, this.#toldAtMs.get(id) ?? -Infinity);
  }

  /** What the others must know. */
  told(): UseReport["proved"] {
    const nowMs = this.#now();
    return [...this.#ownAtMs].map(([id, atMs]) => ({ id, agoMs: nowMs - atMs }))
      .filter(({ agoMs }) => agoMs < TELL_MS_MAX);
  }

  /** Takes what another worker tells. */
  hear(proved: UseReport["proved"]): void {
    for (const { id, agoMs } of proved) {
      if (!this.#watched.has(id)) continue;
      const known = this.#toldAtMs.get(id) ?? -Infinity;
      this.#toldAtMs.set(id, Math.max(known, this.#now() - agoMs));
    }
  }
}

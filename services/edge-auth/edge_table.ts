/**
 * How many edges serve now, from their beats: what an edge divides the limits by
 * while Redis is away. Pure.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";

export class EdgeTable {
  readonly #now: MonotonicNow;
  readonly #ownId: string;
  readonly #heardAtMs = new Map<string, number>();

  constructor(ownId: string, now: MonotonicNow) {
    this.#ownId = ownId;
    this.#now = now;
  }

  onBeat(edgeId: string): void {
    if (edgeId === this.#ownId) return;
    if (!this.#heardAtMs.has(edgeId)) this.#forgetSilent();
    this.#heardAtMs.set(edgeId, this.#now());
  }

  /** Edges heard lately and this one, so at least 1. */
  get count(): number {
    this.#forgetSilent();
    return this.#heardAtMs.size + 1;
  }

  #forgetSilent(): void {
    const oldest = this.#now() - DISPATCH_LIMITS.edgeLostMs;
    for (const [edgeId, heardAtMs] of this.#heardAtMs) {
      if (heardAtMs < oldest) this.#heardAtMs.delete(edgeId);
    }
  }
}

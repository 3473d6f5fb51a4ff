/**
 * Notices edges that are gone, by their silence. Pure: what was heard and a clock
 * in, answers out.
 */
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";

export class EdgeLiveness {
  readonly #now: MonotonicNow;
  readonly #heardAtMs = new Map<string, number>();

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** A beat or a job of this edge has come. */
  onHeard(edgeId: string): void {
    this.#heardAtMs.set(edgeId, this.#now());
  }

  /** Begins every silence anew: while the bus was away nobody could be heard. */
  forgiveSilence(): void {
    for (const edgeId of this.#heardAtMs.keys()) this.onHeard(edgeId);
  }

  /** The edges that are lost by now, each once; all when the bus is gone. */
  takeLost(isBusGone: boolean): string[] {
    const oldest = this.#now() - DISPATCH_LIMITS.edgeLostMs;
    const lost: string[] = [];
    for (const [edgeId, heardAtMs] of this.#heardAtMs) {
      if (isBusGone || heardAtMs <= oldest) lost.push(edgeId);
    }
    for (const edgeId of lost) this.#heardAtMs.delete(edgeId);
    return lost;
  }
}

/**
 * Notices edges that are gone, by their silence. It proves nothing while the bus
 * brings us nothing at all: then this worker does not hear its own beats either.
 * Pure: what was heard and a clock in, answers out.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";

export interface EdgeLivenessOptions {
  now: MonotonicNow;
  /** When the bus is away for this long, every edge is lost. */
  busLostMs: number;
}

export class EdgeLiveness {
  readonly #now: MonotonicNow;
  readonly #busLostMs: number;
  readonly #heardAtMs = new Map<string, number>();
  #heardSelfAtMs: number;
  /** Our own beats do not come back. */
  #isDeaf = false;
  #busLostAtMs: number | null = null;

  constructor(options: EdgeLivenessOptions) {
    this.#now = options.now;
    this.#busLostMs = options.busLostMs;
    this.#heardSelfAtMs = options.now();
  }

  /** A beat or a job of this edge has come. */
  onHeard(edgeId: string): void {
    this.#heardAtMs.set(edgeId, this.#now());
  }

  /** A beat of this worker itself came back: the bus carries messages. */
  onOwnBeat(): void {
    this.#heardSelfAtMs = this.#now();
  }

  onDisconnect(): void {
    this.#busLostAtMs = this.#now();
  }

  /** Nobody could be heard: every silence begins anew. */
  onReconnect(): void {
    this.#busLostAtMs = null;
    this.#heardSelfAtMs = this.#now();
    this.#forgiveSilence();
  }

  #forgiveSilence(): void {
    const now = this.#now();
    for (const edgeId of this.#heardAtMs.keys()) {
      this.#heardAtMs.set(edgeId, now);
    }
  }

  /** The edges that are lost by now, each once. */
  takeLost(): string[] {
    const now = this.#now();
    const isBusGone = this.#busLostAtMs !== null &&
      now - this.#busLostAtMs >= this.#busLostMs;
    const provesNothing = this.#busLostAtMs !== null || this.#hearsNothing(now);
    if (!isBusGone && provesNothing) return [];
    const lost: string[] = [];
    for (const [edgeId, heardAtMs] of this.#heardAtMs) {
      if (!isBusGone && now - heardAtMs < DISPATCH_LIMITS.edgeLostMs) continue;
      this.#heardAtMs.delete(edgeId);
      lost.push(edgeId);
    }
    return lost;
  }

  /** Whether the bus brings us nothing. The first time it does again, all silence begins anew. */
  #hearsNothing(now: number): boolean {
    const wasDeaf = this.#isDeaf;
    this.#isDeaf = now - this.#heardSelfAtMs >= DISPATCH_LIMITS.deafMs;
    if (wasDeaf && !this.#isDeaf) this.#forgiveSilence();
    return this.#isDeaf;
  }
}

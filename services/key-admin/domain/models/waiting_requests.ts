/** What waits at the edges for a free slot, as they tell on their beats. */
import { decodeEdgeBeat, type EdgeWaiting } from "@gateway/shared/bus/waiting";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";

/** What waits for one model, at all edges together. */
export interface WaitingOfModel {
  readonly requests: number;
  /** How long the oldest has waited. */
  readonly oldestMs: number;
}

/** The last beat of an edge. */
interface LastBeat {
  readonly waiting: EdgeWaiting;
  /** When it came. */
  readonly atMs: number;
}

/** What each edge has told last. */
export class WaitingRequests {
  readonly #now: MonotonicNow;
  readonly #edges = new Map<string, LastBeat>();

  constructor(now: MonotonicNow) {
    this.#now = now;
  }

  /** A beat of an edge has come. */
  onBeat(edgeId: string, data: Uint8Array): void {
    const waiting = decodeEdgeBeat(data);
    if (waiting.size === 0) this.#edges.delete(edgeId);
    else this.#edges.set(edgeId, { waiting, atMs: this.#now() });
  }

  /** What waits now, by models; uploads, whose models are not known yet, by lanes. */
  read(): ReadonlyMap<string, WaitingOfModel> {
    const nowMs = this.#now();
    const models = new Map<string, WaitingOfModel>();
    for (const [edgeId, { waiting, atMs }] of this.#edges) {
      const silentMs = nowMs - atMs;
      if (silentMs >= DISPATCH_LIMITS.edgeLostMs) {
        this.#edges.delete(edgeId);
        continue;
      }
      for (const [lane, { requests, oldestMs }] of waiting) {
        const before = models.get(lane) ?? { requests: 0, oldestMs: 0 };
        models.set(lane, {
          requests: before.requests + requests,
          oldestMs: Math.max(before.oldestMs, oldestMs + silentMs),
        });
      }
    }
    return models;
  }
}

/** The edges that a worker hears: when last, and whose turn it is to use its slots. */
import type { BusLink } from "../bus/link_nats.ts";
import { lastToken, subjects, type WorkerFamily } from "../bus/subjects.ts";
import { decodeEdgeBeat, decodeReturn, encodeTurn } from "../bus/waiting.ts";
import { DISPATCH_LIMITS } from "../limits.ts";
import { uploadsLane } from "../models/queue.ts";
import type { WorkerCounters } from "./jobs/job_report.ts";
import { Turns } from "./turns.ts";

/** What they need of their worker. */
export interface KnownEdgesOptions {
  readonly bus: Pick<BusLink, "subscribe">;
  readonly workerId: string;
  readonly family: WorkerFamily;
  /** A clock that stands still while the process is stalled. */
  readonly clock: { now(): number };
  readonly runners: {
    has(model: string): boolean;
    saturatedMs?(model: string): number;
  };
  readonly metrics: Pick<WorkerCounters, "turn">;
  readonly publish: (subject: string, payload: Uint8Array) => void;
}

/** The edges by their ids. */
export class KnownEdges {
  readonly turns: Turns;
  readonly #options: KnownEdgesOptions;
  readonly #seenAtMs = new Map<string, number>();

  constructor(options: KnownEdgesOptions) {
    this.#options = options;
    const { family, workerId, clock, runners, metrics, publish } = options;
    const uploads = uploadsLane(family);
    this.turns = new Turns({
      now: () => clock.now(),
      mayRun: (lane) =>
        lane === uploads ||
        runners.has(lane) && (runners.saturatedMs?.(lane) ?? 0) === 0,
      tell: (edgeId, news) => {
        const turn = encodeTurn({ worker: workerId, ...news });
        publish(subjects.edgeTurns(edgeId), turn);
      },
      count: (result) => metrics.turn(result),
    });
  }

  /**
   * Listens to beats, and to edges that return a slot. `onNew`: an edge was heard for
   * the first time. `onFree`: a slot that was kept is free for all.
   */
  listen({ onNew, onFree }: { onNew: () => void; onFree: () => void }): void {
    const { bus, family, workerId } = this.#options;
    bus.subscribe(subjects.edgeBeats, ({ subject, data }) => {
      const edgeId = lastToken(subject);
      const isNew = !this.#seenAtMs.has(edgeId);
      this.onSign(edgeId);
      this.turns.onBeat(edgeId, decodeEdgeBeat(data));
      if (isNew) onNew();
    });
    bus.subscribe(subjects.turnReturns(family, workerId), ({ data }) => {
      const edgeId = decodeReturn(data);
      if (edgeId !== null && !this.turns.onReturn(edgeId)) onFree();
    });
  }

  /** An edge has given a sign of life. */
  onSign(edgeId: string): void {
    this.#seenAtMs.set(edgeId, this.#options.clock.now());
  }

  /** No edge could be heard for a while: every silence starts over. */
  forgive(): void {
    for (const edgeId of this.#seenAtMs.keys()) this.onSign(edgeId);
  }

  /** Forgets the edges that have been silent for too long, or all, and returns them. */
  takeLost(which: "silent" | "all"): string[] {
    const oldestMs = this.#options.clock.now() - DISPATCH_LIMITS.edgeLostMs;
    const lost = this.#seenAtMs.entries().filter(([, seenAtMs]) =>
      which === "all" || seenAtMs <= oldestMs
    ).map(([edgeId]) => edgeId).toArray();
    for (const edgeId of lost) {
      this.#seenAtMs.delete(edgeId);
      this.turns.onEdgeLost(edgeId);
    }
    return lost;
  }
}

/**
 * Notices workers that are gone. A killed process is found by asking it: the bus
 * answers at once that nobody listens. A frozen one is found by its silence.
 */
import type { MonotonicNow } from "@gateway/shared/clock";
import { type BusLink, NoRespondersError } from "@gateway/shared/bus/link";
import { CONTROL_PROBE } from "@gateway/shared/bus/control";
import { decodeWorkerBeat } from "@gateway/shared/bus/beat";
import { chatControlSubject, lastToken } from "@gateway/shared/bus/subjects";
import type { WorkerTable } from "./worker_table.ts";

export interface WorkerLivenessDependencies {
  bus: Pick<BusLink, "isConnected" | "request">;
  workers: WorkerTable;
  now: MonotonicNow;
  /** A worker is gone, and with it all its jobs. */
  onLost: (workerId: string) => void;
  /** A worker may have room for a waiting request. */
  onRoom: () => void;
}

/** Silent workers are looked for this often. */
const SWEEP_MS = 100;
const PROBE_TIMEOUT_MS = 300;

export class WorkerLiveness {
  readonly #d: WorkerLivenessDependencies;
  readonly #probing = new Set<string>();
  #lastSweepMs = 0;

  constructor(dependencies: WorkerLivenessDependencies) {
    this.#d = dependencies;
  }

  /** Takes in a message on a worker's beat subject. */
  onBeatMessage(subject: string, data: Uint8Array): void {
    const beat = decodeWorkerBeat(data);
    if (beat === null) return; // Another version: not ours to use.
    if (this.#d.workers.onBeat(lastToken(subject), beat)) this.#d.onRoom();
  }

  /** Looks for silent workers. Called often, acts every {@link SWEEP_MS}. */
  tick(nowMs: number): void {
    // Without the bus nobody can be heard: their silence proves nothing.
    if (!this.#d.bus.isConnected || nowMs - this.#lastSweepMs < SWEEP_MS) {
      return;
    }
    this.#lastSweepMs = nowMs;
    const silent = this.#d.workers.sweep();
    for (const workerId of silent.lost) this.#d.onLost(workerId);
    for (const workerId of silent.probe) this.probe(workerId);
  }

  /** Asks a worker whether it lives. It is lost when the bus says that nobody listens. */
  probe(workerId: string): void {
    if (this.#probing.has(workerId)) return;
    this.#probing.add(workerId);
    this.#d.bus.request(chatControlSubject(workerId), CONTROL_PROBE, {
      timeoutMs: PROBE_TIMEOUT_MS,
    }).catch((error: unknown) => {
      // No answer in time says little: the next sweep decides by the beats.
      if (!(error instanceof NoRespondersError)) return;
      this.#d.workers.remove(workerId);
      this.#d.onLost(workerId);
    }).finally(() => this.#probing.delete(workerId));
  }
}

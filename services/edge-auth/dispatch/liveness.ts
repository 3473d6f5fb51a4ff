/**
 * Notices workers that are gone. A killed process is found by asking it, twice: the
 * bus answers at once that nobody listens. A frozen one is found by its silence.
 *
 * Neither proves anything while the bus itself is the one that fails: this process
 * then does not hear its own beats either. And when the bus is back, workers may
 * come back a little later than we do.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { type BusLink, NoRespondersError } from "@gateway/shared/bus/link";
import { CONTROL_PROBE } from "@gateway/shared/bus/control";
import { decodeWorkerBeat } from "@gateway/shared/bus/beat";
import { chatControlSubject, lastToken } from "@gateway/shared/bus/subjects";
import type { BusSince } from "./run.ts";
import type { WorkerTable } from "./workers.ts";

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
  /** Since when the bus does not find these workers. */
  readonly #missing = new Map<string, number>();
  #lastSweepMs = 0;
  #heardSelfAtMs: number;
  /** When the bus last brought anything. */
  #heardAtMs = -Infinity;
  #isDeaf = false;
  /** Until then workers may still be on their way back to the bus. */
  #rejoinUntilMs = -Infinity;

  constructor(dependencies: WorkerLivenessDependencies) {
    this.#d = dependencies;
    this.#heardSelfAtMs = dependencies.now();
  }

  /** Whether a worker that nobody finds on the bus may just not be back yet. */
  get isRejoining(): boolean {
    return this.#d.now() < this.#rejoinUntilMs;
  }

  /** Whether there is a worker that was just there and may be back in a moment. */
  get isAnyMissing(): boolean {
    return this.#missing.size > 0;
  }

  /** A beat of this edge itself came back: the bus carries messages. */
  onOwnBeat(): void {
    this.#heardSelfAtMs = this.#d.now();
    this.onHeard();
  }

  /** The bus brought something. */
  onHeard(): void {
    this.#heardAtMs = this.#d.now();
  }

  busSince(sinceMs: number): BusSince {
    if (!this.#d.bus.isConnected || sinceMs < this.#rejoinUntilMs) {
      return "broken";
    }
    return this.#heardAtMs >= sinceMs ? "carried" : "silent";
  }

  /** The bus was away and is back: every silence begins anew. */
  onBusRestored(): void {
    const now = this.#d.now();
    this.#isDeaf = false;
    this.#heardSelfAtMs = now;
    this.#rejoinUntilMs = now + DISPATCH_LIMITS.workerLostMs;
    for (const workerId of this.#missing.keys()) {
      this.#missing.set(workerId, now);
    }
    this.#d.workers.forgiveSilence();
  }

  /** Takes in a message on a worker's beat subject. */
  onBeatMessage(subject: string, data: Uint8Array): void {
    this.onHeard();
    const beat = decodeWorkerBeat(data);
    if (beat === null) return; // Another version: not ours to use.
    const workerId = lastToken(subject);
    this.#missing.delete(workerId);
    if (this.#d.workers.onBeat(workerId, beat)) this.#d.onRoom();
  }

  /** Looks for silent workers. Called often, acts every {@link SWEEP_MS}. */
  tick(): void {
    const nowMs = this.#d.now();
    // Without the bus nobody can be heard: their silence proves nothing.
    if (!this.#d.bus.isConnected || nowMs - this.#lastSweepMs < SWEEP_MS) {
      return;
    }
    this.#lastSweepMs = nowMs;
    if (nowMs - this.#heardSelfAtMs >= DISPATCH_LIMITS.deafMs) {
      this.#isDeaf = true;
      return;
    }
    if (this.#isDeaf) this.onBusRestored();
    const silent = this.#d.workers.sweep();
    for (const workerId of silent.lost) this.#d.onLost(workerId);
    for (const workerId of silent.probe) this.probe(workerId);
    for (const workerId of this.#missing.keys()) this.probe(workerId);
  }

  /** Asks a worker whether it lives. */
  probe(workerId: string): void {
    if (this.isRejoining || this.#probing.has(workerId)) return;
    this.#probing.add(workerId);
    this.#d.bus.request(chatControlSubject(workerId), CONTROL_PROBE, {
      timeoutMs: PROBE_TIMEOUT_MS,
    }).then(() => void this.#missing.delete(workerId), (error: unknown) => {
      // No answer in time says little: the next sweep decides by the beats.
      if (error instanceof NoRespondersError) this.onNotFound(workerId);
    }).finally(() => this.#probing.delete(workerId));
  }

  /**
   * The bus says that nobody listens where this worker should: it gets no jobs, and
   * is lost when the bus says so for {@link DISPATCH_LIMITS.workerMissingMs}.
   */
  onNotFound(workerId: string): void {
    const nowMs = this.#d.now();
    const sinceMs = this.#missing.get(workerId) ?? nowMs;
    this.#d.workers.remove(workerId);
    this.#missing.set(workerId, sinceMs);
    if (nowMs - sinceMs < DISPATCH_LIMITS.workerMissingMs) return;
    this.#missing.delete(workerId);
    this.#d.onLost(workerId);
  }
}

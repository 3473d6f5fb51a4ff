/**
 * Notices workers that are gone. A killed process is found by asking it, twice: the
 * bus answers at once that nobody listens. A frozen one is found by its silence.
 *
 * Neither proves anything while the bus itself is the one that fails. And when it is
 * back, workers may come back a little later than we do.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { type BusLink, NoRespondersError } from "@gateway/shared/bus/link";
import { CONTROL_PROBE } from "@gateway/shared/bus/control";
import { decodeWorkerBeat } from "@gateway/shared/bus/job";
import { chatControlSubject, lastToken } from "@gateway/shared/bus/subjects";
import type { BusSince } from "./run.ts";
import type { WorkerTable } from "./workers.ts";

export interface WorkerLivenessDependencies {
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "heardAtMs" | "request"
  >;
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
  /** Until then, by the clock of the bus, workers may still be on their way back to it. */
  #rejoinUntilMs = -Infinity;

  constructor(dependencies: WorkerLivenessDependencies) {
    this.#d = dependencies;
  }

  /** Whether a worker that nobody finds on the bus may just not be back yet. */
  get isRejoining(): boolean {
    return this.#d.bus.heardAtMs < this.#rejoinUntilMs;
  }

  /** Whether there may be a worker that was just there and is back in a moment. */
  get isAnyMissing(): boolean {
    return this.#missing.size > 0 || this.isRejoining;
  }

  busSince(sinceMs: number): BusSince {
    const { isConnected, heardAtMs } = this.#d.bus;
    if (!isConnected || sinceMs < this.#rejoinUntilMs) return "broken";
    return heardAtMs >= sinceMs ? "carried" : "silent";
  }

  /** The bus was away and is back: every silence begins anew. */
  onBusRestored(): void {
    const { bus, now, workers } = this.#d;
    this.#rejoinUntilMs = (bus.flowingSinceMs ?? bus.heardAtMs) +
      DISPATCH_LIMITS.workerLostMs;
    for (const workerId of this.#missing.keys()) {
      this.#missing.set(workerId, now());
    }
    workers.forgiveSilence();
  }

  /** Takes in a message on a worker's beat subject. */
  onBeatMessage(subject: string, data: Uint8Array): void {
    const beat = decodeWorkerBeat(data);
    if (beat === null) return; // Another version: not ours to use.
    const workerId = lastToken(subject);
    this.#missing.delete(workerId);
    if (this.#d.workers.onBeat(workerId, beat)) this.#d.onRoom();
  }

  /** Looks for silent workers. Called often, acts every {@link SWEEP_MS}. */
  tick(): void {
    const nowMs = this.#d.now();
    if (nowMs - this.#lastSweepMs < SWEEP_MS) return;
    this.#lastSweepMs = nowMs;
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

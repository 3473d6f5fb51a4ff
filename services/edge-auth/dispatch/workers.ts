/**
 * Which workers live and how full they are, from their beats, and which are gone.
 *
 * Workers are picked by the power of two choices: of two drawn at random the one
 * with more free slots. That keeps its tail short even with beats some seconds
 * old, where "always the emptiest" sends everybody to the same worker.
 */
import { CONTROL_PROBE } from "@gateway/shared/bus/control";
import { decodeWorkerBeat, type WorkerBeat } from "@gateway/shared/bus/job";
import { type BusLink, NoRespondersError } from "@gateway/shared/bus/link";
import { chatControlSubject, lastToken } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { BusSince } from "./run.ts";

/** What an edge knows of one worker. */
interface WorkerEntry {
  readonly id: string;
  slots: number;
  /** As of the last beat. */
  inFlight: number;
  /** Jobs this edge sent since the last beat and has not seen end. */
  sentSinceBeat: number;
  draining: boolean;
  models: ReadonlySet<string>;
  beatAtMs: number;
  /** Full by its own word: skipped until this time. */
  fullUntilMs: number;
}

/** What became of the silent workers. */
export interface SilentWorkers {
  /** Should be asked directly whether they live. */
  probe: string[];
  /** Are lost, and already forgotten. */
  lost: string[];
}

/** Draws a number in [0, 1). */
export type Random = () => number;

export class WorkerTable {
  readonly #workers = new Map<string, WorkerEntry>();
  readonly #now: MonotonicNow;
  readonly #random: Random;

  constructor(dependencies: { now: MonotonicNow; random: Random }) {
    this.#now = dependencies.now;
    this.#random = dependencies.random;
  }

  /** Takes in a beat. Returns whether a slot may have become free. */
  onBeat(id: string, beat: WorkerBeat): boolean {
    const before = this.#workers.get(id);
    this.#workers.set(id, {
      id,
      slots: beat.slots,
      inFlight: beat.inFlight,
      sentSinceBeat: 0,
      draining: beat.draining,
      models: sameModels(before?.models, beat.models),
      beatAtMs: this.#now(),
      fullUntilMs: 0,
    });
    return !beat.draining && beat.inFlight < beat.slots;
  }

  /** A worker for this model that is not in `tried`, or null. */
  pick(model: string, tried: ReadonlySet<string>): string | null {
    const candidates = this.#candidates(model, tried);
    const first = this.#draw(candidates);
    const second = this.#draw(candidates);
    if (first === undefined) return null;
    if (second === undefined) return first.id;
    return freeShare(second) > freeShare(first) ? second.id : first.id;
  }

  /** Notes a job on its way, so that a burst between two beats spreads out. */
  onSent(id: string): void {
    const worker = this.#workers.get(id);
    if (worker !== undefined) worker.sentSinceBeat += 1;
  }

  /** Notes the end of a job of this edge. */
  onEnded(id: string): void {
    const worker = this.#workers.get(id);
    if (worker === undefined) return;
    if (worker.sentSinceBeat > 0) worker.sentSinceBeat -= 1;
    else if (worker.inFlight > 0) worker.inFlight -= 1;
    worker.fullUntilMs = 0;
  }

  /** Notes that a worker said it is full; the next beat knows better. */
  onFull(id: string, retryAfterMs: number): void {
    const worker = this.#workers.get(id);
    if (worker !== undefined) worker.fullUntilMs = this.#now() + retryAfterMs;
  }

  /** Whether the pause of a full worker has ended since the last call. */
  takeEndedPauses(): boolean {
    const now = this.#now();
    let hasEnded = false;
    for (const worker of this.#workers.values()) {
      if (worker.fullUntilMs === 0 || worker.fullUntilMs > now) continue;
      worker.fullUntilMs = 0;
      hasEnded = true;
    }
    return hasEnded;
  }

  /** Notes that a worker said it will leave. */
  onDraining(id: string): void {
    const worker = this.#workers.get(id);
    if (worker !== undefined) worker.draining = true;
  }

  /** Forgets a worker that is known to be gone. */
  remove(id: string): void {
    this.#workers.delete(id);
  }

  /** Whether any worker, free or not, runs this model and takes jobs. */
  knows(model: string): boolean {
    for (const worker of this.#workers.values()) {
      if (worker.models.has(model) && this.#isAlive(worker)) return true;
    }
    return false;
  }

  /** Sorts out workers whose beats stopped, and forgets the lost ones. */
  sweep(): SilentWorkers {
    const now = this.#now();
    const silent: SilentWorkers = { probe: [], lost: [] };
    for (const worker of this.#workers.values()) {
      const silenceMs = now - worker.beatAtMs;
      if (silenceMs >= DISPATCH_LIMITS.workerLostMs) {
        silent.lost.push(worker.id);
        this.#workers.delete(worker.id);
      } else if (silenceMs >= DISPATCH_LIMITS.workerProbeMs) {
        silent.probe.push(worker.id);
      }
    }
    return silent;
  }

  /** Begins every silence anew: while the bus was away nobody could be heard. */
  forgiveSilence(): void {
    const now = this.#now();
    for (const worker of this.#workers.values()) worker.beatAtMs = now;
  }

  /** Slots and jobs of all living workers, for metrics. */
  totals(): { workers: number; slots: number; inFlight: number } {
    const totals = { workers: 0, slots: 0, inFlight: 0 };
    for (const worker of this.#workers.values()) {
      if (!this.#isAlive(worker)) continue;
      totals.workers += 1;
      totals.slots += worker.slots;
      totals.inFlight += worker.inFlight + worker.sentSinceBeat;
    }
    return totals;
  }

  #isAlive(worker: WorkerEntry): boolean {
    return !worker.draining &&
      this.#now() - worker.beatAtMs < DISPATCH_LIMITS.workerSkipMs;
  }

  #candidates(model: string, tried: ReadonlySet<string>): WorkerEntry[] {
    const now = this.#now();
    const candidates: WorkerEntry[] = [];
    for (const worker of this.#workers.values()) {
      if (
        this.#isAlive(worker) && worker.models.has(model) &&
        !tried.has(worker.id) && worker.fullUntilMs <= now &&
        worker.inFlight + worker.sentSinceBeat < worker.slots
      ) candidates.push(worker);
    }
    return candidates;
  }

  /** Takes one of the candidates out at random. */
  #draw(candidates: WorkerEntry[]): WorkerEntry | undefined {
    if (candidates.length === 0) return undefined;
    const [drawn] = candidates.splice(
      Math.floor(this.#random() * candidates.length),
      1,
    );
    return drawn;
  }
}

function freeShare(worker: WorkerEntry): number {
  return 1 - (worker.inFlight + worker.sentSinceBeat) / worker.slots;
}

/** Keeps the old set when nothing changed: beats come four times a second. */
function sameModels(
  before: ReadonlySet<string> | undefined,
  models: string[],
): ReadonlySet<string> {
  if (
    before !== undefined && before.size === models.length &&
    models.every((model) => before.has(model))
  ) return before;
  return new Set(models);
}

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

/**
 * Notices workers that are gone. A killed process is found by asking it, twice: the
 * bus answers at once that nobody listens. A frozen one is found by its silence.
 *
 * Neither proves anything while the bus itself is the one that fails. And when it is
 * back, workers may come back a little later than we do.
 */
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

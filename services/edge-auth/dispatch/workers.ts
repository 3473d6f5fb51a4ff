/**
 * Which workers live and how full they are, from their beats. Pure: beats and a
 * clock in, answers out.
 *
 * Workers are picked by the power of two choices: of two drawn at random the one
 * with more free slots. That keeps its tail short even with beats some seconds
 * old, where "always the emptiest" sends everybody to the same worker.
 */
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { WorkerBeat } from "@gateway/shared/bus/job";

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

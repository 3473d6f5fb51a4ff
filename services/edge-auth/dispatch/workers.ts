/**
 * The workers that are alive and how busy they are, according to their beats.
 *
 * A worker that is silent for {@link DISPATCH_LIMITS.workerLostMs} is lost, with all
 * its jobs. A killed process is detected sooner: a worker that is silent for a moment
 * is probed, and the bus replies at once if it has no subscriber. If it still has none
 * after {@link DISPATCH_LIMITS.workerMissingMs}, the worker is lost. Neither proves
 * anything during an outage of the bus: then the dispatcher does not call `sweep`.
 */
import type { WorkerBeat } from "@gateway/shared/bus/job";
import type { RejectPayload } from "@gateway/shared/bus/stream/payloads";
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import type { Turn } from "@gateway/shared/bus/waiting";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { Saturation } from "./saturation.ts";

/**
 * What is known of a worker. `inFlight` is as of its last beat, corrected by what this
 * edge has sent and seen end since.
 */
export interface Worker extends Omit<WorkerBeat, "models" | "listed"> {
  readonly id: string;
  readonly models: ReadonlySet<string>;
  /** Further models, which its servers list. */
  readonly listed: ReadonlySet<string>;
  /** The limits of its servers, as far as it has said. */
  readonly saturation: Saturation;
  /** When its last beat came. */
  beatAtMs: number;
  /** When it was last asked whether it is alive. */
  probedAtMs: number;
  /** It gets no jobs until then, or until its next beat. */
  pausedUntilMs: number;
  /** Since when it has had no subscriber on the bus, or null. */
  missingSinceMs: number | null;
}

const PROBE_EVERY_MS = 100;
/**
 * A worker that rejected a job gets none for this long, unless it sent a
 * `retryAfterMs`.
 */
const REJECTED_MS = 100;

/** A model, and the workers that may run a request for it. */
export interface WantedModel {
  readonly model: string;
  /** A worker of another one has another list, in which the model is of another kind. */
  readonly family: WorkerFamily;
  /** Whether the model is a guess, so that limits of its servers do not matter. */
  readonly isGuess?: boolean;
}

/** How many workers live, how many jobs they run at once, and how many they run now. */
export interface WorkerTotals {
  workers: number;
  slots: number;
  used: number;
}

/** What a table of workers needs, and whom it tells. */
export interface WorkerTableOptions {
  now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  random: () => number;
  /** Called when a worker is lost; it is no longer in the table. */
  onLost?: (worker: Worker) => void;
  /** Called when a job has ended, so that its slot is free. */
  onSlotFreed?: () => void;
}

/** The known workers by their ids. */
export class WorkerTable {
  readonly #options: WorkerTableOptions;
  readonly #workers = new Map<string, Worker>();
  /** The worker that keeps a slot which is not used yet, and what it ran before. */
  #turn: { readonly id: string; readonly inFlight: number } | null = null;
  /** When workers should have reconnected to the bus. */
  #rejoinUntilMs = -Infinity;

  constructor(options: WorkerTableOptions) {
    this.#options = options;
  }

  /** Sends no jobs to a worker for `ms`, or until its next beat. */
  pause(id: string, ms: number): void {
    const worker = this.#workers.get(id);
    if (worker !== undefined) worker.pausedUntilMs = this.#options.now() + ms;
  }

  /** Processes a beat. Returns whether a slot may have become free. */
  onBeat(id: string, { listed, ...beat }: WorkerBeat): boolean {
    const before = this.#workers.get(id);
    this.#workers.set(id, {
      ...beat,
      id,
      models: new Set(beat.models),
      listed: listed === undefined
        ? before?.listed ?? NONE
        : new Set(Object.values(listed).flat()),
      saturation: before?.saturation ?? new Saturation(),
      beatAtMs: this.#options.now(),
      probedAtMs: -Infinity,
      pausedUntilMs: 0,
      missingSinceMs: null,
    });
    return !beat.draining && beat.inFlight < beat.slots;
  }

  /**
   * A worker with a free slot that has not been tried, or null. Of two drawn at random,
   * the emptier one: with old beats, the least busy of all would get every job. One
   * whose servers are at limits of theirs counts as full.
   */
  pick(wanted: WantedModel, tried: readonly string[]): string | null {
    const { model, isGuess = false } = wanted;
    const nowMs = this.#options.now();
    const candidates: Worker[] = [];
    // Each offer looks at all workers, of which most are full when it matters.
    for (const worker of this.#workers.values()) {
      const isFree = worker.inFlight < worker.slots &&
        worker.pausedUntilMs <= nowMs && isAlive(worker, nowMs) &&
        !tried.includes(worker.id) && runs(worker, wanted) &&
        (isGuess || worker.saturation.isOpen(model, nowMs));
      if (isFree) candidates.push(worker);
    }
    const first = this.#draw(candidates);
    const second = this.#draw(candidates);
    if (first === undefined) return null;
    if (second === undefined) return first.id;
    const isSecondEmptier =
      second.inFlight / second.slots < first.inFlight / first.slots;
    return isSecondEmptier ? second.id : first.id;
  }

  /** The family of a worker, or of most workers if it is unknown. */
  familyOf(id: string): WorkerFamily {
    return this.#workers.get(id)?.family ?? "chat";
  }

  /** Whether a worker, busy or not, runs this model. */
  hasWorkerFor(wanted: WantedModel): boolean {
    return this.#workers.values().some((worker) =>
      runs(worker, wanted) && !worker.draining
    );
  }

  /**
   * Whether a worker runs this model, or none of its family is known: then nothing is
   * known of what they have.
   */
  mayRun(wanted: WantedModel): boolean {
    const ofFamily = this.#workers.values().filter((worker) =>
      worker.family === wanted.family && !worker.draining
    ).toArray();
    return ofFamily.length === 0 ||
      ofFamily.some((worker) => runs(worker, wanted));
  }

  /**
   * How long the servers of a model are at limits of theirs, as all its workers have
   * said; 0: one of them has not.
   */
  saturatedMs(wanted: WantedModel): number {
    if (wanted.isGuess) return 0;
    const nowMs = this.#options.now();
    let leastMs = Infinity;
    for (const worker of this.#workers.values()) {
      if (!isAlive(worker, nowMs) || !runs(worker, wanted)) continue;
      const waitMs = worker.saturation.waitMs(wanted.model, nowMs);
      if (waitMs === 0) return 0;
      leastMs = Math.min(leastMs, waitMs);
    }
    return leastMs === Infinity ? 0 : leastMs;
  }

  /**
   * Counts a job that was sent, so that a burst between two beats is spread out. For
   * `model` its servers may have limits; null: it is not known which they are.
   */
  onSent(id: string, model: string | null = null): void {
    const worker = this.#workers.get(id);
    if (worker === undefined) return;
    worker.inFlight += 1;
    if (this.#turn?.id === id) this.#turn = null;
    if (model === null) return;
    worker.saturation.onOffered(model, this.#options.now());
  }

  /** The worker has accepted a job. */
  onAccepted(id: string, model: string | null): void {
    if (model !== null) this.#workers.get(id)?.saturation.onAccepted(model);
  }

  /**
   * A worker keeps a slot for this edge, or has passed to another edge the slot of a
   * job whose end follows.
   */
  onTurn({ worker: id, model, slot }: Turn): void {
    const worker = this.#workers.get(id);
    if (worker === undefined) return;
    const { inFlight, slots, saturation } = worker;
    if (slot === "passed") {
      worker.inFlight += 1;
      if (model !== null) saturation.onPassed(model);
      return;
    }
    worker.inFlight = Math.min(inFlight, slots - 1);
    worker.pausedUntilMs = 0;
    if (model !== null) saturation.onEnded(model);
    this.#turn = { id, inFlight };
  }

  /** Ends a turn. Returns whether the slot was not needed: then it is taken no more. */
  endTurn(): boolean {
    const turn = this.#turn;
    this.#turn = null;
    const worker = turn && this.#workers.get(turn.id);
    if (turn && worker) worker.inFlight = turn.inFlight;
    return turn !== null;
  }

  /** Frees the slot of a job that has ended. */
  onEnded(id: string, model: string | null = null): void {
    const worker = this.#workers.get(id);
    if (worker !== undefined) {
      worker.inFlight = Math.max(0, worker.inFlight - 1);
      worker.pausedUntilMs = 0;
      if (model !== null) worker.saturation.onEnded(model);
    }
    this.#options.onSlotFreed?.();
  }

  /** The worker has rejected a job for a model. */
  onRejected(
    { worker, reason, retryAfterMs }: RejectPayload,
    model: string,
  ): void {
    if (reason === "saturated") {
      const { saturation } = this.#workers.get(worker) ?? {};
      saturation?.onRejected(model, retryAfterMs ?? 0, this.#options.now());
    } else if (reason !== "unknown_model") {
      // A worker that has another list of models takes the jobs of all others.
      this.pause(worker, retryAfterMs ?? REJECTED_MS);
    }
  }

  /**
   * Notes that this worker has no subscriber on the bus. It is lost if that has lasted
   * for {@link DISPATCH_LIMITS.workerMissingMs}.
   */
  onMissing(id: string): void {
    const worker = this.#workers.get(id);
    if (worker === undefined) return;
    const nowMs = this.#options.now();
    const { workerMissingMs } = DISPATCH_LIMITS;
    if (nowMs < this.#rejoinUntilMs) return this.pause(id, workerMissingMs);
    worker.missingSinceMs ??= nowMs;
    if (nowMs - worker.missingSinceMs >= workerMissingMs) this.#lose(worker);
  }

  /** The worker has answered a probe. */
  onAnswer(id: string): void {
    const worker = this.#workers.get(id);
    if (worker !== undefined) worker.missingSinceMs = null;
  }

  /** Removes the workers that are lost. Returns those to probe. */
  sweep(): string[] {
    const nowMs = this.#options.now();
    const suspects: string[] = [];
    const lost: Worker[] = [];
    for (const worker of this.#workers.values()) {
      const silenceMs = nowMs - worker.beatAtMs;
      const isSuspect = silenceMs >= DISPATCH_LIMITS.workerProbeMs ||
        worker.missingSinceMs !== null;
      if (silenceMs >= DISPATCH_LIMITS.workerLostMs) lost.push(worker);
      else if (isSuspect && nowMs - worker.probedAtMs >= PROBE_EVERY_MS) {
        worker.probedAtMs = nowMs;
        suspects.push(worker.id);
      }
    }
    for (const worker of lost) this.#lose(worker);
    return suspects;
  }

  /** The bus works again after an outage: every silence starts anew. */
  onBusRestored(): void {
    const beatAtMs = this.#options.now();
    this.#rejoinUntilMs = beatAtMs + DISPATCH_LIMITS.workerLostMs;
    for (const worker of this.#workers.values()) {
      worker.beatAtMs = beatAtMs;
      worker.missingSinceMs = null;
    }
  }

  /** Slots and jobs of the living workers, of one family or all, for metrics. */
  totals(family?: WorkerFamily): WorkerTotals {
    const nowMs = this.#options.now();
    const totals = { workers: 0, slots: 0, used: 0 };
    for (const worker of this.#workers.values()) {
      if (!isAlive(worker, nowMs)) continue;
      if (family !== undefined && worker.family !== family) continue;
      totals.workers += 1;
      totals.slots += worker.slots;
      totals.used += worker.inFlight;
    }
    return totals;
  }

  #draw(candidates: Worker[]): Worker | undefined {
    const index = Math.floor(this.#options.random() * candidates.length);
    return candidates.splice(index, 1)[0];
  }

  #lose(worker: Worker): void {
    this.#workers.delete(worker.id);
    this.#options.onLost?.(worker);
  }
}

const NONE: ReadonlySet<string> = new Set();

const runs = (worker: Worker, { model, family }: WantedModel): boolean =>
  worker.family === family &&
  (worker.models.has(model) || worker.listed.has(model));

function isAlive(worker: Worker, nowMs: number): boolean {
  return !worker.draining && worker.missingSinceMs === null &&
    nowMs - worker.beatAtMs < DISPATCH_LIMITS.workerSkipMs;
}

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
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { MonotonicNow } from "@gateway/shared/process/clock";

/** `inFlight` as of the last beat, and what this edge has sent and seen end since. */
export interface Worker extends Omit<WorkerBeat, "models"> {
  readonly id: string;
  models: ReadonlySet<string>;
  beatAtMs: number;
  probedAtMs: number;
  /** It gets no jobs until then, or until its next beat. */
  pausedUntilMs: number;
  /** Since when it has had no subscriber on the bus, or null. */
  missingSinceMs: number | null;
}

const PROBE_EVERY_MS = 100;

export type WorkerTable = ReturnType<typeof createWorkerTable>;

export function createWorkerTable(
  { now, random }: { now: MonotonicNow; random: () => number },
) {
  const workers = new Map<string, Worker>();
  /** Until then, workers may still be reconnecting to the bus. */
  let rejoinUntilMs = -Infinity;

  const draw = (candidates: Worker[]): Worker | undefined =>
    candidates.splice(Math.floor(random() * candidates.length), 1)[0];
  /** Sends no jobs to a worker for `ms`, or until its next beat. */
  const pause = (id: string, ms: number) => {
    const worker = workers.get(id);
    if (worker !== undefined) worker.pausedUntilMs = now() + ms;
  };

  return {
    pause,
    /** Processes a beat. Returns whether a slot may have become free. */
    onBeat(id: string, beat: WorkerBeat): boolean {
      workers.set(id, {
        ...beat,
        id,
        models: new Set(beat.models),
        beatAtMs: now(),
        probedAtMs: -Infinity,
        pausedUntilMs: 0,
        missingSinceMs: null,
      });
      return !beat.draining && beat.inFlight < beat.slots;
    },
    /**
     * Of two drawn at random, the emptier one: with old beats, the least busy of all
     * would get every job.
     */
    pick(model: string, tried: ReadonlySet<string>): string | null {
      const nowMs = now();
      const candidates = workers.values().filter((worker) =>
        isAlive(worker, nowMs) && worker.models.has(model) &&
        worker.pausedUntilMs <= nowMs && worker.inFlight < worker.slots &&
        !tried.has(worker.id)
      ).toArray();
      const first = draw(candidates);
      const second = draw(candidates);
      if (first === undefined) return null;
      if (second === undefined) return first.id;
      const isSecondEmptier =
        second.inFlight / second.slots < first.inFlight / first.slots;
      return isSecondEmptier ? second.id : first.id;
    },
    /** The family of a worker, or of most workers if it is unknown. */
    familyOf: (id: string): WorkerFamily => workers.get(id)?.family ?? "chat",
    hasWorkerFor: (model: string): boolean =>
      workers.values().some((worker) =>
        worker.models.has(model) && !worker.draining
      ),
    /** Counts a job that was sent, so that a burst between two beats is spread out. */
    onSent(id: string): void {
      const worker = workers.get(id);
      if (worker !== undefined) worker.inFlight += 1;
    },
    onEnded(id: string): void {
      const worker = workers.get(id);
      if (worker === undefined) return;
      worker.inFlight = Math.max(0, worker.inFlight - 1);
      worker.pausedUntilMs = 0;
    },
    /**
     * Notes that this worker has no subscriber on the bus. Returns it if it is lost.
     */
    onMissing(id: string): Worker | undefined {
      const worker = workers.get(id);
      if (worker === undefined) return;
      const nowMs = now();
      const { workerMissingMs } = DISPATCH_LIMITS;
      if (nowMs < rejoinUntilMs) return void pause(id, workerMissingMs);
      worker.missingSinceMs ??= nowMs;
      const missingMs = nowMs - worker.missingSinceMs;
      if (missingMs < workerMissingMs) return;
      workers.delete(id);
      return worker;
    },
    onAnswer(id: string): void {
      const worker = workers.get(id);
      if (worker !== undefined) worker.missingSinceMs = null;
    },
    /** Returns the workers to probe and those that are lost, which are removed. */
    sweep(): { probe: string[]; lost: Worker[] } {
      const nowMs = now();
      const [probe, lost]: [string[], Worker[]] = [[], []];
      for (const worker of workers.values()) {
        const silenceMs = nowMs - worker.beatAtMs;
        const isSuspect = silenceMs >= DISPATCH_LIMITS.workerProbeMs ||
          worker.missingSinceMs !== null;
        if (silenceMs >= DISPATCH_LIMITS.workerLostMs) {
          lost.push(worker);
          workers.delete(worker.id);
        } else if (isSuspect && nowMs - worker.probedAtMs >= PROBE_EVERY_MS) {
          worker.probedAtMs = nowMs;
          probe.push(worker.id);
        }
      }
      return { probe, lost };
    },
    /** The bus works again after an outage: every silence starts anew. */
    onBusRestored(): void {
      const beatAtMs = now();
      rejoinUntilMs = beatAtMs + DISPATCH_LIMITS.workerLostMs;
      for (const worker of workers.values()) {
        Object.assign(worker, { beatAtMs, missingSinceMs: null });
      }
    },
    /** Slots and jobs of the living workers, of one family or all, for metrics. */
    totals(family?: WorkerFamily) {
      const nowMs = now();
      const totals = { workers: 0, slots: 0, used: 0 };
      for (const worker of workers.values()) {
        if (!isAlive(worker, nowMs)) continue;
        if (family !== undefined && worker.family !== family) continue;
        totals.workers += 1;
        totals.slots += worker.slots;
        totals.used += worker.inFlight;
      }
      return totals;
    },
  };
}

function isAlive(worker: Worker, nowMs: number): boolean {
  return !worker.draining && worker.missingSinceMs === null &&
    nowMs - worker.beatAtMs < DISPATCH_LIMITS.workerSkipMs;
}

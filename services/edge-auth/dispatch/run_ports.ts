/**
 * What a run uses of its edge, and whom it tells: narrow, so that its tests need no
 * dispatcher.
 */
import type { WorkerFamily } from "@gateway/shared/bus/subjects";
import type { RejectPayload } from "@gateway/shared/bus/stream/payloads";
import type { QueueTerms } from "@gateway/shared/models/queue";
import type { ApiError } from "@gateway/shared/openai/error";
import type { Log } from "@gateway/shared/process/log";
import type { OfferBus, OfferClock } from "./offer.ts";
import type { AnswerSink, RunJob, RunOutcome } from "./outcome.ts";
import type { QueueFull, Waiting } from "./queue/wait_queue.ts";
import type { SearchedWorkers } from "./worker_search.ts";

/** The workers, as a run sees them; `WorkerTable` describes each. */
export interface RunWorkers extends SearchedWorkers {
  pause(workerId: string, ms: number): void;
  onSent(workerId: string, model: string | null): void;
  onAccepted(workerId: string, model: string | null): void;
  onRejected(reject: RejectPayload, model: string): void;
  onEnded(workerId: string, model: string | null): void;
  onMissing(workerId: string): void;
}

/** The queue of requests that wait for a slot. */
export interface RunQueue {
  hasWaiting(family: WorkerFamily, lane: string): boolean;
  push(item: Waiting): QueueFull | null;
}

/** What the edge still needs of a run that is over: to forget it, and its place. */
export interface OverRun {
  readonly job: Pick<RunJob, "requestId">;
  readonly place: Waiting;
}

/** What a run needs of its edge. */
export interface RunTools {
  readonly bus: OfferBus & { readonly isConnected: boolean };
  readonly workers: RunWorkers;
  readonly queue: RunQueue;
  readonly clock: OfferClock;
  readonly log: Pick<Log, "warn" | "error">;
  /** How requests for a model wait; null: it is an upload, whose model is a guess. */
  readonly queueOf: (model: string | null) => QueueTerms;
  /** The error of a model that an operator has disabled; null: it is not. */
  readonly refusalOf: (model: string) => ApiError | null;
  /** The longest that a run may take, in any state. */
  readonly requestTimeoutMs: number;
  /**
   * Forgets a run, before its own listener hears of its end. One function for all of
   * them, because thousands may wait.
   */
  readonly onOver: (run: OverRun) => void;
}

/** Who gets the answer, and who hears of the end, once. */
export interface RunListeners {
  readonly sink: AnswerSink;
  readonly onEnded: (outcome: RunOutcome) => void;
}

/**
 * Brings chat requests and workers together: picks a worker for each run, sends
 * the job, routes what comes back, and lets time pass for all of them.
 */
import type { CancelReason } from "@gateway/shared/bus/control";
import { decodeFrame } from "@gateway/shared/bus/frame";
import { type BusLink, FlowWatch } from "@gateway/shared/bus/link";
import { answerStrayFrame } from "@gateway/shared/bus/stream_receiver";
import {
  chatAnySubject,
  chatJobSubject,
  parseEdgeStreamSubject,
} from "@gateway/shared/bus/subjects";
import { type MonotonicNow, SteadyClock } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { ApiError } from "@gateway/shared/openai/error";
import { settlesWithin } from "@gateway/shared/process/serve";
import { ControlOutbox } from "./control.ts";
import { JobSender } from "./job.ts";
import {
  type AnswerSink,
  busUnavailable,
  type ChatJob,
  ChatRun,
  type LeftReason,
  overloaded,
  type RunAction,
  type RunOutcome,
} from "./run.ts";
import { WaitQueue } from "./wait_queue.ts";
import { type Random, WorkerLiveness, WorkerTable } from "./workers.ts";

/** What the dispatcher needs from the bus. */
export type DispatchBus = Pick<
  BusLink,
  "isConnected" | "flowingSinceMs" | "heardAtMs" | "publish" | "request"
>;

export interface ChatDispatcherDependencies {
  bus: DispatchBus;
  edgeId: string;
  now: MonotonicNow;
  random: Random;
  /** Runs a function at the end of the event-loop turn. */
  schedule: (flush: () => void) => void;
  /** Runs a function within `ACK_WAIT_MS`. */
  scheduleSoon: (flush: () => void) => void;
  log: Log;
  /** Requests that may wait for a slot. */
  queueMax: number;
  /** A request is over after this long, whatever it does. */
  requestTimeoutMs: number;
  /** Default `DISPATCH_LIMITS.busLostMs`. */
  busLostMs?: number;
}

/** A run that was begun, for those who wait for its answer. */
export interface StartedRun {
  /** The client's socket took everything up to this frame. */
  delivered(sequence: number): void;
  /** Stops the work, wherever it stands. With an `error` the client is still there and gets it. */
  cancel(reason: CancelReason, error?: ApiError): void;
}

/** How often {@link ChatDispatcher.tick} must be called. */
export const DISPATCH_TICK_MS = 25;
/** A worker that did not even answer is left alone this long, unless it beats. */
const UNRESPONSIVE_MS = 1_000;
/** A worker that refused for another reason than its load is left alone this long, unless it beats. */
const REFUSED_MS = 100;

interface Entry {
  run: ChatRun;
  onEnded: (outcome: RunOutcome) => void;
}

export class ChatDispatcher {
  readonly workers: WorkerTable;
  readonly liveness: WorkerLiveness;
  readonly #d: ChatDispatcherDependencies;
  readonly #clock: SteadyClock;
  readonly #runs = new Map<string, Entry>();
  readonly #queue: WaitQueue<ChatRun>;
  readonly #control: ControlOutbox;
  readonly #jobs: JobSender;
  readonly #flow: FlowWatch;
  #onIdle: (() => void) | null = null;

  constructor(dependencies: ChatDispatcherDependencies) {
    this.#d = dependencies;
    const { bus, now, log, edgeId } = dependencies;
    this.#clock = new SteadyClock(now);
    const steadyNow = () => this.#clock.now();
    this.#queue = new WaitQueue({
      now,
      lengthMax: dependencies.queueMax,
      waitMsMax: DISPATCH_LIMITS.queueWaitMs,
    });
    this.#control = new ControlOutbox({
      publish: (subject, payload) => this.#tryPublish(subject, payload),
      schedule: dependencies.schedule,
      scheduleSoon: dependencies.scheduleSoon,
    });
    this.#jobs = new JobSender({
      bus,
      edgeId,
      now,
      log,
      publish: (subject, payload, reply) =>
        this.#tryPublish(subject, payload, reply),
      onUploadFailed: (run) => this.#do(run, run.onWorkerLost()),
    });
    this.workers = new WorkerTable({
      now: steadyNow,
      random: dependencies.random,
    });
    this.liveness = new WorkerLiveness({
      bus,
      workers: this.workers,
      now: steadyNow,
      onLost: (workerId) => this.#onWorkerLost(workerId),
      onRoom: () => this.#offerWaiting(),
    });
    this.#flow = new FlowWatch(bus, now);
  }

  /** Runs that are not over. */
  get running(): number {
    return this.#runs.size;
  }

  /** Runs that wait for a slot. */
  get waiting(): number {
    return this.#queue.length;
  }

  /** Workers that control records are kept for. */
  get outboxes(): number {
    return this.#control.size;
  }

  /** Begins a run. It tells `sink` its answer and `onEnded` its end, each exactly once. */
  start(
    job: ChatJob,
    sink: AnswerSink,
    onEnded: (outcome: RunOutcome) => void,
  ): StartedRun {
    const run = new ChatRun({
      job,
      sink,
      timeoutMs: this.#d.requestTimeoutMs,
      now: this.#d.now,
      steadyNow: () => this.#clock.now(),
      log: this.#d.log,
      controlFor: (workerId) => this.#control.to(workerId),
      busSince: (sinceMs) => this.liveness.busSince(sinceMs),
    });
    this.#runs.set(job.requestId, { run, onEnded });
    // Newcomers do not overtake those that wait for the same workers.
    const { model } = job.request;
    const mustQueue = this.#queue.hasWaiting(model) &&
      this.workers.knows(model);
    if (mustQueue || !this.#offer(run)) this.#wait(run);
    return {
      delivered: (sequence) => run.delivered(sequence),
      cancel: (reason, error) => this.#do(run, run.cancel(reason, error)),
    };
  }

  /** A message on a stream subject of this edge. */
  onStreamMessage(
    subject: string,
    data: Uint8Array,
    isNoResponders: boolean,
  ): void {
    const target = parseEdgeStreamSubject(subject);
    if (target === null) return;
    const { requestId, attempt } = target;
    const run = this.#runs.get(requestId)?.run;
    if (isNoResponders) {
      // Whether the bus is back just now says what this word is worth.
      this.#followBus();
      const mayComeBack = this.liveness.isAnyMissing;
      if (run) this.#do(run, run.onNoResponders(attempt, mayComeBack));
      return;
    }
    const frame = decodeFrame(data);
    if (typeof frame === "string") {
      this.#d.log.warn("frame_unreadable", {
        requestId: publicRequestId(requestId),
        fault: frame,
      });
      return;
    }
    const actions = run?.onFrame(frame) ?? null;
    if (run !== undefined && actions !== null) this.#do(run, actions);
    else answerStrayFrame(requestId, frame, (id) => this.#control.to(id));
  }

  /** Ends every run that `isMeant` names, with this error for clients that still wait. */
  cancelAll(
    reason: "key_revoked" | "shutdown",
    error: ApiError,
    isMeant: (requestId: string) => boolean = () => true,
  ): void {
    this.#forEach((run) =>
      isMeant(run.job.requestId) ? run.cancel(reason, error) : []
    );
  }

  /**
   * Whether every run ended in time. To be awaited before what settles them is
   * stopped: a run that was cancelled waits a moment for the word on its cost.
   */
  idleWithin(timeoutMs: number): Promise<boolean> {
    if (this.#runs.size === 0) return Promise.resolve(true);
    const idle = new Promise<void>((resolve) => this.#onIdle = resolve);
    return settlesWithin(idle, timeoutMs);
  }

  /** Lets time pass. */
  tick(): void {
    this.#clock.tick();
    const nowMs = this.#d.now();
    this.#followBus();
    if (this.workers.takeEndedPauses()) this.#offerWaiting();
    const isConnected = this.#d.bus.isConnected;
    for (const run of this.#queue.expire()) {
      this.#do(run, run.fail(isConnected ? overloaded() : busUnavailable()));
    }
    this.#forEach((run) => run.onTick(nowMs));
  }

  #followBus(): void {
    if (this.#flow.look() === "restored") {
      this.liveness.onBusRestored();
      for (const { run } of this.#runs.values()) run.onBusRestored();
      this.#offerWaiting();
    }
    const { lostForMs } = this.#flow;
    // While the bus is away nobody can be heard: silence proves nothing.
    if (lostForMs === 0) this.liveness.tick();
    const { busLostMs = DISPATCH_LIMITS.busLostMs } = this.#d;
    if (lostForMs >= busLostMs) this.#forEach((run) => run.onBusGivenUp());
  }

  #forEach(event: (run: ChatRun) => readonly RunAction[]): void {
    for (const { run } of [...this.#runs.values()]) this.#do(run, event(run));
  }

  #do(run: ChatRun, actions: readonly RunAction[]): void {
    for (const action of actions) {
      switch (action.type) {
        case "search":
          if (!this.#offer(run)) this.#wait(run);
          break;
        case "wait":
          this.#wait(run);
          break;
        case "accepted":
          this.#jobs.onAccepted(run, action.workerId);
          break;
        case "left":
          if (action.hadSlot) this.#onSlotFree(action.workerId);
          this.#noteLeft(action.workerId, action.reason);
          break;
        case "over":
          this.#forget(run, action.outcome);
      }
    }
  }

  /** Sends the job to a worker that was not tried yet. False when there is none with room. */
  #offer(run: ChatRun): boolean {
    if (!this.#d.bus.isConnected) return false;
    const { model } = run.job.request;
    const workerId = this.workers.pick(model, run.tried);
    // Somebody runs the model but has no room: wait. Nobody known: ask whoever listens.
    if (workerId === null && this.workers.knows(model)) return false;
    const subject = workerId === null
      ? chatAnySubject
      : chatJobSubject(workerId);
    if (!this.#jobs.send(run, subject)) return false;
    if (workerId !== null) this.workers.onSent(workerId);
    run.onOffered(workerId);
    return true;
  }

  #wait(run: ChatRun): void {
    const { searchingSinceMs: sinceMs, job: { request: { model } } } = run;
    const waitedMs = this.#d.now() - sinceMs;
    run.tried.clear();
    if (
      waitedMs >= DISPATCH_LIMITS.queueWaitMs ||
      !this.#queue.push(run, model, sinceMs)
    ) this.#do(run, run.fail(overloaded()));
  }

  #offerWaiting(): void {
    this.#queue.offer((run) => this.#offer(run));
  }

  #onSlotFree(workerId: string): void {
    this.workers.onEnded(workerId);
    if (this.#queue.length > 0) this.#d.schedule(() => this.#offerWaiting());
  }

  #noteLeft(workerId: string, reason: LeftReason): void {
    if (reason.type === "refused") {
      const { reject } = reason;
      if (reject.reason === "draining") this.workers.onDraining(workerId);
      else this.workers.onFull(workerId, reject.retryAfterMs ?? REFUSED_MS);
    } else if (reason.type === "gone" && !this.liveness.isRejoining) {
      // It takes no jobs any more; whether those it has are lost is another question.
      this.liveness.onNotFound(workerId);
    } else if (reason.type !== "ended") {
      this.workers.onFull(workerId, UNRESPONSIVE_MS);
    }
  }

  #forget(run: ChatRun, outcome: RunOutcome): void {
    const { requestId } = run.job;
    const entry = this.#runs.get(requestId);
    this.#queue.remove(run);
    this.#jobs.forget(run);
    this.#runs.delete(requestId);
    if (this.#runs.size === 0) this.#onIdle?.();
    entry?.onEnded(outcome);
  }

  #onWorkerLost(workerId: string): void {
    this.#d.log.warn("worker_lost", { workerId });
    this.#forEach((run) => run.workerId === workerId ? run.onWorkerLost() : []);
  }

  #tryPublish(subject: string, payload: Uint8Array, reply?: string): boolean {
    try {
      this.#d.bus.publish(
        subject,
        payload,
        reply === undefined ? {} : { reply },
      );
      return true;
    } catch (error) {
      // Acknowledgements are repeated, jobs wait: the bus itself logs its state.
      this.#d.log.debug("publish_failed", { subject, error });
      return false;
    }
  }
}

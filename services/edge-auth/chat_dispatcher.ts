/**
 * Brings chat requests and workers together: picks a worker for each run, sends
 * the job, routes what comes back, and lets time pass for all of them.
 */
import type { BusLink } from "@gateway/shared/bus/link";
import type { ControlSink } from "@gateway/shared/bus/control";
import { decodeFrame, type Frame } from "@gateway/shared/bus/frame";
import type { RejectPayload } from "@gateway/shared/bus/frame_payload";
import { strayFrameAnswer } from "@gateway/shared/bus/stray_frame";
import {
  chatAnySubject,
  chatJobSubject,
  parseEdgeStreamSubject,
} from "@gateway/shared/bus/subjects";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import { settlesWithin } from "@gateway/shared/process/serve";
import type { AnswerSink } from "./answer.ts";
import type { ChatJob, RunOutcome } from "./chat_job.ts";
import { ChatRun, type RunHost } from "./chat_run.ts";
import { ControlOutbox } from "./control_outbox.ts";
import { JobSender } from "./job_sender.ts";
import { WaitQueue } from "./wait_queue.ts";
import { WorkerLiveness } from "./worker_liveness.ts";
import type { WorkerTable } from "./worker_table.ts";

/** What the dispatcher needs from the bus. */
export type DispatchBus = Pick<BusLink, "isConnected" | "publish" | "request">;

export interface ChatDispatcherDependencies {
  bus: DispatchBus;
  edgeId: string;
  workers: WorkerTable;
  now: MonotonicNow;
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

/** How often {@link ChatDispatcher.tick} must be called. */
export const DISPATCH_TICK_MS = 25;
/** A tick this late says that we were the silent ones. */
const OWN_LAG_MS = 200;
/** A worker that did not even answer is left alone this long, unless it beats. */
const UNRESPONSIVE_MS = 1_000;
/** A worker that refused for another reason than its load is left alone this long, unless it beats. */
const REFUSED_MS = 100;

export class ChatDispatcher implements RunHost {
  readonly now: MonotonicNow;
  readonly log: Log;
  readonly liveness: WorkerLiveness;
  readonly #d: ChatDispatcherDependencies;
  readonly #runs = new Map<string, ChatRun>();
  readonly #queue: WaitQueue<ChatRun>;
  readonly #control: ControlOutbox;
  readonly #jobs: JobSender;
  #lastTickMs: number;
  #onIdle: (() => void) | null = null;
  readonly #busLostMs: number;
  #busLostAtMs: number | null = null;

  constructor(dependencies: ChatDispatcherDependencies) {
    this.#d = dependencies;
    this.now = dependencies.now;
    this.log = dependencies.log;
    this.#queue = new WaitQueue({
      now: dependencies.now,
      lengthMax: dependencies.queueMax,
      waitMsMax: DISPATCH_LIMITS.queueWaitMs,
    });
    this.#control = new ControlOutbox({
      publish: (subject, payload) => this.#tryPublish(subject, payload),
      schedule: dependencies.schedule,
      scheduleSoon: dependencies.scheduleSoon,
    });
    this.#jobs = new JobSender({
      bus: dependencies.bus,
      edgeId: dependencies.edgeId,
      now: dependencies.now,
      log: dependencies.log,
      publish: (subject, payload, reply) =>
        this.#tryPublish(subject, payload, reply),
    });
    this.liveness = new WorkerLiveness({
      bus: dependencies.bus,
      workers: dependencies.workers,
      now: dependencies.now,
      onLost: (workerId) => this.#onWorkerLost(workerId),
      onRoom: () => this.#offerWaiting(),
    });
    this.#busLostMs = dependencies.busLostMs ?? DISPATCH_LIMITS.busLostMs;
    this.#lastTickMs = dependencies.now();
  }

  get mayFindWorker(): boolean {
    return this.liveness.isAnyMissing;
  }

  wasBusUpSince(sinceMs: number): boolean {
    return this.liveness.wasBusUpSince(sinceMs);
  }

  mustQueue({ job: { request: { model } } }: ChatRun): boolean {
    return this.#queue.hasWaiting(model) && this.#d.workers.knows(model);
  }

  /** Runs that are not over. */
  get running(): number {
    return this.#runs.size;
  }

  /** Runs that wait for a slot. */
  get waiting(): number {
    return this.#queue.length;
  }

  /** Begins a run. It tells `sink` its answer and `onEnded` its end, each exactly once. */
  start(
    job: ChatJob,
    sink: AnswerSink,
    onEnded: (outcome: RunOutcome) => void,
  ): ChatRun {
    const run = new ChatRun({
      job,
      sink,
      host: this,
      timeoutMs: this.#d.requestTimeoutMs,
      onEnded,
    });
    this.#runs.set(job.requestId, run);
    run.start();
    return run;
  }

  /** A message on a stream subject of this edge. */
  onStreamMessage(
    subject: string,
    data: Uint8Array,
    isNoResponders: boolean,
  ): void {
    const target = parseEdgeStreamSubject(subject);
    if (target === null) return;
    this.liveness.onHeard();
    const { requestId, attempt } = target;
    const run = this.#runs.get(requestId);
    if (isNoResponders) {
      run?.onNoResponders(attempt);
      return;
    }
    const frame = decodeFrame(data);
    if (typeof frame === "string") {
      this.log.warn("frame_unreadable", {
        requestId: publicRequestId(requestId),
        fault: frame,
      });
      return;
    }
    if (run?.onFrame(frame) !== true) this.#answerStray(requestId, frame);
  }

  /** Ends every run that `isMeant` names, with this error for clients that still wait. */
  cancelAll(
    reason: "key_revoked" | "shutdown",
    error: ApiError,
    isMeant: (requestId: string) => boolean = () => true,
  ): void {
    for (const [requestId, run] of [...this.#runs]) {
      if (isMeant(requestId)) run.cancel(reason, error);
    }
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
    const now = this.now();
    const sinceLastMs = now - this.#lastTickMs;
    if (sinceLastMs > OWN_LAG_MS) {
      // Not all of it: one whose every tick is late must still miss the dead.
      this.#d.workers.forgiveSilence(sinceLastMs - DISPATCH_TICK_MS);
    }
    this.#lastTickMs = now;
    this.liveness.tick(now);
    if (this.#d.workers.takeEndedPauses()) this.#offerWaiting();
    for (const run of this.#queue.expire()) {
      run.onWaitedTooLong(this.#d.bus.isConnected);
    }
    for (const run of [...this.#runs.values()]) run.onTick(now);
    if (
      this.#busLostAtMs !== null && now - this.#busLostAtMs >= this.#busLostMs
    ) {
      for (const run of [...this.#runs.values()]) run.onBusGivenUp();
    }
  }

  onBusLost(): void {
    this.#busLostAtMs ??= this.now();
  }

  onBusRestored(): void {
    this.#busLostAtMs = null;
    this.liveness.onBusRestored();
    for (const run of this.#runs.values()) run.onBusRestored();
    this.#offerWaiting();
  }

  /** Workers that control records are kept for. */
  get outboxes(): number {
    return this.#control.size;
  }

  controlFor(workerId: string): ControlSink {
    return this.#control.to(workerId);
  }

  offer(run: ChatRun): boolean {
    if (!this.#d.bus.isConnected) return false;
    const { model } = run.job.request;
    const workerId = this.#d.workers.pick(model, run.tried);
    // Somebody runs the model but has no room: wait. Nobody known: ask whoever listens.
    if (workerId === null && this.#d.workers.knows(model)) return false;
    const subject = workerId === null
      ? chatAnySubject
      : chatJobSubject(workerId);
    if (!this.#jobs.send(run, subject)) return false;
    if (workerId !== null) this.#d.workers.onSent(workerId);
    run.onOffered(workerId);
    return true;
  }

  enqueue(run: ChatRun, sinceMs: number): boolean {
    return this.#queue.push(run, run.job.request.model, sinceMs);
  }

  onAccepted(run: ChatRun, workerId: string): void {
    this.#jobs.onAccepted(run, workerId);
  }

  onRejected(workerId: string, reject: RejectPayload): void {
    if (reject.reason === "draining") this.#d.workers.onDraining(workerId);
    else this.#d.workers.onFull(workerId, reject.retryAfterMs ?? REFUSED_MS);
  }

  onUnresponsive(workerId: string): void {
    this.#d.workers.onFull(workerId, UNRESPONSIVE_MS);
  }

  onGone(workerId: string): void {
    if (this.liveness.isRejoining) {
      this.onUnresponsive(workerId);
      return;
    }
    // It takes no jobs any more; whether those it has are lost is another question.
    this.liveness.onNotFound(workerId);
  }

  onAttemptOver(workerId: string): void {
    this.#d.workers.onEnded(workerId);
    if (this.#queue.length > 0) this.#d.schedule(() => this.#offerWaiting());
  }

  forget(run: ChatRun): void {
    this.#queue.remove(run);
    this.#jobs.forget(run);
    if (this.#runs.get(run.job.requestId) === run) {
      this.#runs.delete(run.job.requestId);
    }
    if (this.#runs.size === 0) this.#onIdle?.();
  }

  #offerWaiting(): void {
    this.#queue.offer((run) => run.onRoom());
  }

  #onWorkerLost(workerId: string): void {
    this.log.warn("worker_lost", { workerId });
    for (const run of [...this.#runs.values()]) {
      if (run.workerId === workerId) run.onWorkerLost();
    }
  }

  #answerStray(requestId: string, frame: Frame): void {
    const answer = strayFrameAnswer(frame);
    if (answer === null) return;
    const control = this.#control.to(answer.workerId);
    if (answer.type === "ack") {
      control.ack(requestId, answer.attempt, answer.sequence);
    } else control.cancel(requestId, answer.attempt, "unknown_stream");
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
      this.log.debug("publish_failed", { subject, error });
      return false;
    }
  }
}

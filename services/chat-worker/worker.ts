/**
 * Takes jobs from the bus, runs as many at once as it has slots, and passes their
 * answers on. Everything that arrives is handled at once or refused at once:
 * nothing waits here, because an edge knows better where else there is room.
 */
import {
  type MonotonicNow,
  SteadyClock,
  type WallNow,
} from "@gateway/shared/process/clock";
import { type Log, roundMs } from "@gateway/shared/process/log";
import { BEAT_VERSION, encodeWorkerBeat } from "@gateway/shared/bus/job";
import { BodyAssembly, decodePiece } from "@gateway/shared/bus/job";
import {
  type BusLink,
  type BusMessage,
  type BusSubscription,
  FlowWatch,
} from "@gateway/shared/bus/link";
import { decodeControl } from "@gateway/shared/bus/control";
import {
  encodeRejectFrame,
  type RejectReason,
} from "@gateway/shared/bus/frame";
import {
  decodeJob,
  JobFormatError,
  type JobMessage,
} from "@gateway/shared/bus/job";
import {
  CHAT_QUEUE,
  chatAnySubject,
  chatBodyWildcard,
  chatControlSubject,
  chatJobSubject,
  edgeBeatWildcard,
  lastToken,
  parseEdgeStreamSubject,
  workerBeatSubject,
} from "@gateway/shared/bus/subjects";
import { publicRequestId } from "@gateway/shared/process/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import { settlesWithin } from "@gateway/shared/process/serve";
import { ApiError } from "@gateway/shared/openai/error";
import { startWorkSpan, type WorkSpan } from "@gateway/shared/process/tracing";
import type { Backend } from "./backends/backend.ts";
import { EdgeLiveness } from "./edge_liveness.ts";
import type { WorkerMetrics } from "./metrics.ts";
import { BUSY_JOBS_MIN, FrameOutbox } from "./frame_outbox.ts";
import { Job } from "./job.ts";

/** What the worker needs of the bus. */
export type WorkerBus = Pick<
  BusLink,
  "isConnected" | "flowingSinceMs" | "publish" | "subscribe" | "flush"
>;

export interface ChatWorkerDependencies {
  bus: WorkerBus;
  workerId: string;
  /** Jobs that run at once. */
  slots: number;
  /** The backend of each model this worker runs. */
  backends: ReadonlyMap<string, Backend>;
  now: MonotonicNow;
  wallNow: WallNow;
  log: Log;
  metrics: WorkerMetrics;
  /** Runs a function within `FRAME_WAIT_MS`. */
  scheduleSoon: (flush: () => void) => void;
  /** Backends are stopped when the bus is away for this long. Default `DISPATCH_LIMITS.busLostMs`. */
  busLostMs?: number;
}

/** How often {@link ChatWorker.tick} must be called. */
export const WORKER_TICK_MS = 50;
/** A full worker asks edges to stay away this long; its next beat says more. */
const FULL_RETRY_MS = 100;

const EMPTY = new Uint8Array(0);

export class ChatWorker {
  readonly #d: ChatWorkerDependencies;
  /** By request id. A second attempt of a request replaces the first. */
  readonly #jobs = new Map<string, Job>();
  readonly #frames: FrameOutbox;
  readonly #edges: EdgeLiveness;
  readonly #subscriptions: BusSubscription[] = [];
  readonly #clock: SteadyClock;
  readonly #flow: FlowWatch;
  #inFlight = 0;
  #isDraining = false;
  /** Until a flush shows that the jobs that piled up while the process slept were all read. */
  #isWaking = false;
  #lastTickMs: number;
  #lastBeatMs = -Infinity;
  #onIdle: (() => void) | null = null;

  constructor(dependencies: ChatWorkerDependencies) {
    this.#d = dependencies;
    const { now } = dependencies;
    this.#lastTickMs = now();
    this.#clock = new SteadyClock(now);
    this.#edges = new EdgeLiveness(() => this.#clock.now());
    this.#flow = new FlowWatch(dependencies.bus, now);
    this.#frames = new FrameOutbox({
      publish: (subject, frame) => this.#publish(subject, frame),
      scheduleSoon: dependencies.scheduleSoon,
      isBusy: () => this.#jobs.size >= BUSY_JOBS_MIN,
    });
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Jobs whose answer is not with its edge yet. */
  get unfinished(): number {
    return this.#jobs.size;
  }

  /** Bytes of answers that are kept until edges have acknowledged them. */
  get bufferedBytes(): number {
    let bytes = 0;
    for (const job of this.#jobs.values()) bytes += job.bufferedBytes;
    return bytes;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Starts to take jobs. Resolves when the bus knows of it. */
  async start(): Promise<void> {
    const { bus, workerId } = this.#d;
    const onJob = (message: BusMessage) => this.#onJob(message);
    this.#subscriptions.push(
      bus.subscribe(chatJobSubject(workerId), onJob),
      bus.subscribe(chatAnySubject, onJob, { queue: CHAT_QUEUE }),
    );
    bus.subscribe(
      chatControlSubject(workerId),
      (message) => this.#onControl(message),
    );
    bus.subscribe(
      chatBodyWildcard(workerId),
      (message) => this.#onPiece(message),
    );
    bus.subscribe(
      edgeBeatWildcard,
      ({ subject }) => this.#edges.onHeard(lastToken(subject)),
    );
    await bus.flush();
    // The bus flows from here on: losing it before the first tick counts as an outage.
    this.#flow.look();
    this.#beat(this.#d.now());
  }

  /** Lets time pass: beats, deadlines, repeats, lost edges. */
  tick(): void {
    const now = this.#d.now();
    this.#clock.tick();
    if (now - this.#lastTickMs > DISPATCH_LIMITS.acceptMs) this.#wakeUp();
    this.#lastTickMs = now;
    if (now - this.#lastBeatMs >= DISPATCH_LIMITS.workerBeatMs) this.#beat(now);
    for (const job of this.#jobs.values()) job.onTick(now);
    this.#followBus(now);
  }

  #followBus(now: number): void {
    if (this.#flow.look() === "restored") {
      this.#edges.forgiveSilence();
      for (const job of this.#jobs.values()) job.onReconnect();
      this.#beat(now);
    }
    // While the bus is away nobody can be heard: silence proves nothing.
    const { lostForMs } = this.#flow;
    const busLostMs = this.#d.busLostMs ?? DISPATCH_LIMITS.busLostMs;
    if (lostForMs > 0 && lostForMs < busLostMs) return;
    for (const edgeId of this.#edges.takeLost(lostForMs > 0)) {
      this.#cancelFor(edgeId);
    }
  }

  /**
   * Leaves: takes no more jobs, lets the running ones end, and after `graceMs`
   * stops what is left. Resolves when every answer is with its edge, or
   * `lastWordMs` after the grace time.
   */
  async drain(options: { graceMs: number; lastWordMs: number }): Promise<void> {
    this.#isDraining = true;
    this.#beat(this.#d.now());
    if (!await this.#idleWithin(options.graceMs)) {
      for (const job of this.#jobs.values()) {
        job.stop(
          new ApiError("server_shutdown", "The server is shutting down."),
        );
      }
      await this.#idleWithin(options.lastWordMs);
    }
    // Not earlier: until now, jobs that still arrived were sent elsewhere.
    await Promise.all(this.#subscriptions.map((s) => s.drain()));
  }

  #onJob(message: BusMessage): void {
    const reply = message.reply ?? "";
    const target = parseEdgeStreamSubject(reply);
    if (target === null) {
      this.#d.log.warn("job_without_reply", { reply });
      return;
    }
    const job = this.#readJob(message.data, reply);
    if (job === null) return;
    const reason = this.#refusal(job);
    if (reason !== null) {
      this.#reject(reply, job.attempt, reason);
      return;
    }
    this.#take(job, target, reply, message.subject === chatAnySubject);
  }

  #readJob(data: Uint8Array, reply: string): JobMessage | null {
    try {
      return decodeJob(data);
    } catch (error) {
      if (!(error instanceof JobFormatError)) throw error;
      this.#d.log.warn("job_unreadable", { error: error.message });
      if (error.mismatchedAttempt !== null) {
        this.#reject(reply, error.mismatchedAttempt, "unsupported_version");
      }
      return null;
    }
  }

  /** Why this job cannot run here now, or null. */
  #refusal(job: JobMessage): RejectReason | null {
    const asleepMs = this.#d.now() - this.#lastTickMs;
    if (asleepMs > DISPATCH_LIMITS.acceptMs) this.#wakeUp();
    if (this.#isWaking) return "stale";
    if (this.#isDraining) return "draining";
    if (this.#inFlight >= this.#d.slots) return "full";
    if (
      job.request !== undefined && !this.#d.backends.has(job.request.model)
    ) return "unknown_model";
    return null;
  }

  #reject(reply: string, attempt: number, reason: RejectReason): void {
    this.#d.metrics.rejected(reason);
    this.#publish(
      reply,
      encodeRejectFrame(attempt, {
        worker: this.#d.workerId,
        reason,
        retryAfterMs: reason === "full" ? FULL_RETRY_MS : null,
      }),
    );
  }

  #take(
    received: JobMessage,
    target: { edgeId: string; requestId: string },
    reply: string,
    mustIntroduce: boolean,
  ): void {
    const now = this.#d.now();
    // May throw, so it comes before anything is counted.
    const assembly = received.body && new BodyAssembly(received.body);
    const { workerId } = this.#d;
    const requestId = publicRequestId(target.requestId);
    const span = startJobSpan(received, { requestId, workerId });
    const job = new Job({
      ...target,
      attempt: received.attempt,
      workerId,
      deadlineAtMs: now + received.deadlineMs,
      traceparent: span.traceparent,
    }, {
      now: this.#d.now,
      steadyNow: () => this.#clock.now(),
      wallNow: this.#d.wallNow,
      sendFrame: (frame) => this.#frames.send(reply, frame),
      onFault: (error) => this.#d.log.error("job_fault", { requestId, error }),
      onWhole: (job, request) => this.#run(job, request, false),
      onSlotFree: (job) => {
        this.#inFlight -= 1;
        this.#tell(job, span);
        this.#tellIdle();
      },
      onFinished: (job) => {
        this.#d.metrics.finished(job.transport());
        // A second attempt may already have replaced it.
        if (this.#jobs.get(target.requestId) === job) {
          this.#jobs.delete(target.requestId);
        }
        this.#tellIdle();
      },
    });
    this.#cancelOlder(target.requestId);
    this.#jobs.set(target.requestId, job);
    this.#inFlight += 1;
    this.#edges.onHeard(target.edgeId);
    if (received.request !== undefined) {
      this.#run(job, received.request, mustIntroduce);
    } else if (assembly !== undefined) job.expect(assembly);
  }

  /** An edge that sends a request again has given up on the attempt before. */
  #cancelOlder(requestId: string): void {
    const older = this.#jobs.get(requestId);
    older?.onCancel(older.options.attempt, "not_accepted");
  }

  #run(job: Job, request: ChatRequest, mustIntroduce: boolean): void {
    const backend = this.#d.backends.get(request.model);
    if (backend === undefined) {
      return job.refuse(
        "no_worker",
        "No worker runs this model at the moment.",
      );
    }
    if (mustIntroduce) job.accept();
    void job.run(request, backend);
  }

  #onControl(message: BusMessage): void {
    if (message.reply !== undefined && message.reply !== "") {
      this.#publish(message.reply, EMPTY); // A probe: yes, alive.
    }
    decodeControl(message.data, {
      ack: (requestId, attempt, sequence) =>
        this.#jobs.get(requestId)?.onAck(attempt, sequence),
      nak: (requestId, attempt, fromSequence) =>
        this.#jobs.get(requestId)?.onNak(attempt, fromSequence),
      cancel: (requestId, attempt, reason) =>
        this.#jobs.get(requestId)?.onCancel(attempt, reason),
    });
  }

  #onPiece(message: BusMessage): void {
    const piece = decodePiece(message.data);
    if (piece === null) return;
    this.#jobs.get(lastToken(message.subject))
      ?.onPiece(piece, () => this.#publish(message.reply ?? "", EMPTY));
  }

  /** Writes what became of a job to the metrics, the log and the trace. */
  #tell(job: Job, span: WorkSpan): void {
    const report = job.report();
    this.#d.metrics.ended(report);
    this.#d.log.info("job", {
      requestId: publicRequestId(job.options.requestId),
      edgeId: job.options.edgeId,
      attempt: job.options.attempt,
      ...report,
      model: report.model ?? undefined,
      errorCode: report.errorCode ?? undefined,
      cancelReason: report.cancelReason ?? undefined,
      promptTokens: report.promptTokens ?? undefined,
      firstByteMs: report.firstByteMs === null
        ? undefined
        : roundMs(report.firstByteMs),
      durationMs: roundMs(report.durationMs),
    });
    span.end({
      "gateway.outcome": report.outcome,
      "gen_ai.request.model": report.model ?? "",
      "gen_ai.usage.input_tokens": report.promptTokens ?? 0,
      "gen_ai.usage.output_tokens": report.completionTokens,
    }, report.errorCode ?? undefined);
  }

  /**
   * Refuses the jobs that piled up while this process slept, which their edges have
   * sent elsewhere by now. Once a flush returns, all of them have been read.
   */
  #wakeUp(): void {
    if (this.#isWaking) return;
    this.#isWaking = true;
    this.#d.metrics.wokeUp();
    this.#d.log.warn("woke_up", {
      asleepMs: Math.round(this.#d.now() - this.#lastTickMs),
    });
    this.#d.bus.flush().catch((error: unknown) =>
      // Without the bus no jobs have piled up.
      this.#d.log.debug("wake_up_flush_failed", { error })
    ).finally(() => this.#isWaking = false);
  }

  #cancelFor(edgeId: string): void {
    for (const job of this.#jobs.values()) {
      if (job.options.edgeId === edgeId) {
        job.onCancel(job.options.attempt, "edge_lost");
      }
    }
  }

  #beat(now: number): void {
    this.#lastBeatMs = now;
    this.#publish(
      workerBeatSubject(this.#d.workerId),
      encodeWorkerBeat({
        version: BEAT_VERSION,
        slots: this.#d.slots,
        inFlight: this.#inFlight,
        draining: this.#isDraining,
        models: [...this.#d.backends.keys()],
      }),
    );
  }

  #publish(subject: string, payload: Uint8Array): void {
    if (!this.#d.bus.isConnected || subject === "") return;
    try {
      this.#d.bus.publish(subject, payload);
    } catch (error) {
      // Frames are repeated from the replay buffer, beats by the next beat.
      this.#d.log.debug("publish_failed", { subject, error });
    }
  }

  /** Whether every job is done and its answer acknowledged, in time. */
  #idleWithin(timeoutMs: number): Promise<boolean> {
    if (this.#jobs.size === 0) return Promise.resolve(true);
    const idle = new Promise<void>((resolve) => this.#onIdle = resolve);
    return settlesWithin(idle, timeoutMs);
  }

  #tellIdle(): void {
    if (this.#jobs.size === 0) this.#onIdle?.();
  }
}

function startJobSpan(
  { attempt, traceparent }: JobMessage,
  { requestId, workerId }: { requestId: string; workerId: string },
): WorkSpan {
  return startWorkSpan("chat job", {
    kind: "consumer",
    parent: traceparent,
    attributes: {
      "gateway.request_id": requestId,
      "gateway.worker_id": workerId,
      "gateway.attempt": attempt,
    },
  });
}

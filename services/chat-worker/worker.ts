/**
 * Receives jobs from the bus, runs as many at once as it has slots, and sends their
 * answers. Every job is accepted or rejected at once: none waits here, because an
 * edge knows better which other worker has a free slot.
 */
import { decodeControl } from "@gateway/shared/bus/control";
import {
  encodeRejectFrame,
  type RejectReason,
} from "@gateway/shared/bus/frame";
import {
  BEAT_VERSION,
  BodyAssembly,
  decodeJob,
  decodePiece,
  encodeWorkerBeat,
  type JobMessage,
} from "@gateway/shared/bus/job";
import {
  type BusHandler,
  type BusMessage,
  type BusSubscription,
  FlowWatch,
} from "@gateway/shared/bus/link";
import type { BusLink } from "@gateway/shared/bus/link_nats";
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
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import {
  type MonotonicNow,
  SteadyClock,
  type WallNow,
} from "@gateway/shared/process/clock";
import { publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import { settlesWithin } from "@gateway/shared/process/serve";
import { startWorkSpan } from "@gateway/shared/process/tracing";
import { BUSY_JOBS_MIN, createFrameOutbox } from "./frame_outbox.ts";
import { type Backends, Job, type JobHost } from "./job.ts";
import type { WorkerMetrics } from "./metrics.ts";

/** The part of the bus that the worker needs. */
export type WorkerBus = Pick<
  BusLink,
  "isConnected" | "flowingSinceMs" | "publish" | "subscribe" | "flush"
>;

export interface ChatWorkerDependencies {
  bus: WorkerBus;
  workerId: string;
  /** Jobs that run at once. */
  slots: number;
  backends: Backends;
  now: MonotonicNow;
  wallNow: WallNow;
  log: Log;
  metrics: WorkerMetrics;
  /** Runs a function within `FRAME_WAIT_MS`. */
  scheduleSoon: (flush: () => void) => void;
  /** Backends are stopped when the bus has been down for this long. Default `DISPATCH_LIMITS.busLostMs`. */
  busLostMs?: number;
}

/** How often {@link ChatWorker.tick} must be called. */
export const WORKER_TICK_MS = 50;
/** A full worker asks edges to send nothing for this long, or until its next beat. */
const FULL_RETRY_MS = 100;

const EMPTY = new Uint8Array(0);

export class ChatWorker {
  readonly #d: ChatWorkerDependencies;
  /** By request id. A second attempt of a request replaces the first. */
  readonly #jobs = new Map<string, Job>();
  readonly #host: JobHost;
  /** When each edge last sent a beat or a job. */
  readonly #edgeSeenAtMs = new Map<string, number>();
  readonly #subscriptions: BusSubscription[] = [];
  readonly #clock: SteadyClock;
  readonly #flow: FlowWatch;
  #inFlight = 0;
  #isDraining = false;
  /** Set until a flush proves that all jobs that piled up during a stall have been read. */
  #isWaking = false;
  #lastTickMs: number;
  #lastBeatMs = -Infinity;
  #onIdle: (() => void) | null = null;

  constructor(dependencies: ChatWorkerDependencies) {
    this.#d = dependencies;
    const { now } = dependencies;
    this.#lastTickMs = now();
    this.#clock = new SteadyClock(now);
    this.#flow = new FlowWatch(dependencies.bus, now);
    this.#host = {
      ...dependencies,
      steadyNow: () => this.#clock.now(),
      sendFrame: createFrameOutbox({
        publish: (subject, frame) => this.#publish(subject, frame),
        scheduleSoon: dependencies.scheduleSoon,
        isBusy: () => this.#jobs.size >= BUSY_JOBS_MIN,
      }),
      onSlotFree: (job) => this.#onSlotFree(job),
      onFinished: (job) => this.#onFinished(job),
    };
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Jobs whose answer the edge has not fully acknowledged. */
  get unfinished(): number {
    return this.#jobs.size;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Subscribes to jobs. Resolves when the bus has registered the subscriptions. */
  async start(): Promise<void> {
    const { bus, workerId } = this.#d;
    const onJob: BusHandler = (message) => this.#onJob(message);
    const onControl: BusHandler = (message) => this.#onControl(message);
    const onPiece: BusHandler = (message) => this.#onPiece(message);
    const onBeat: BusHandler = (beat) =>
      this.#onEdgeSeen(lastToken(beat.subject));
    this.#subscriptions.push(
      bus.subscribe(chatJobSubject(workerId), onJob),
      bus.subscribe(chatAnySubject, onJob, { queue: CHAT_QUEUE }),
    );
    bus.subscribe(chatControlSubject(workerId), onControl);
    bus.subscribe(chatBodyWildcard(workerId), onPiece);
    bus.subscribe(edgeBeatWildcard, onBeat);
    await bus.flush();
    // The bus flows from here on: losing it before the first tick counts as an outage.
    this.#flow.look();
    this.#beat(this.#d.now());
  }

  /** Advances time: beats, deadlines, repeats, lost edges. */
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
    if (this.#flow.look()) {
      // No edge could be received in the meantime, so every silence starts over.
      for (const edge of this.#edgeSeenAtMs.keys()) this.#onEdgeSeen(edge);
      for (const { sender } of this.#jobs.values()) {
        sender.onReconnect(this.#clock.now());
      }
      this.#beat(now);
    }
    const { lostForMs } = this.#flow;
    const busLostMs = this.#d.busLostMs ?? DISPATCH_LIMITS.busLostMs;
    const isBusGone = lostForMs > 0 && lostForMs >= busLostMs;
    if (lostForMs > 0 && !isBusGone) return;
    const oldestMs = this.#clock.now() - DISPATCH_LIMITS.edgeLostMs;
    for (const [edge, seenAtMs] of this.#edgeSeenAtMs) {
      if (isBusGone || seenAtMs <= oldestMs) this.#onEdgeLost(edge);
    }
  }

  #onEdgeSeen(edge: string): void {
    this.#edgeSeenAtMs.set(edge, this.#clock.now());
  }

  #onEdgeLost(edge: string): void {
    this.#edgeSeenAtMs.delete(edge);
    for (const { options, sender } of this.#jobs.values()) {
      if (options.edgeId === edge) {
        sender.cancel("edge_lost");
      }
    }
  }

  /**
   * Accepts no more jobs, lets the running ones finish, and after `graceMs` stops
   * the rest. Resolves when every answer is acknowledged, or `lastWordMs` after the
   * grace period.
   */
  async drain(options: { graceMs: number; lastWordMs: number }): Promise<void> {
    this.#isDraining = true;
    this.#beat(this.#d.now());
    if (!await this.#idleWithin(options.graceMs)) {
      const message = "The server is shutting down.";
      const error = new ApiError("server_shutdown", message);
      for (const job of this.#jobs.values()) job.stop(error);
      await this.#idleWithin(options.lastWordMs);
    }
    // Not earlier: until now, jobs that still arrived were rejected as `draining`.
    await Promise.all(this.#subscriptions.map((s) => s.drain()));
  }

  #onJob({ data, reply = "", subject }: BusMessage): void {
    const target = parseEdgeStreamSubject(reply);
    if (target === null) {
      return this.#d.log.warn("job_without_reply", { reply });
    }
    const job = decodeJob(data);
    if (job === null) {
      return this.#d.log.warn("job_unreadable", { reply });
    }
    if ("mismatchedAttempt" in job) {
      const { mismatchedAttempt } = job;
      return this.#reject(reply, mismatchedAttempt, "unsupported_version");
    }
    const reason = this.#refusal(job);
    if (reason !== null) return this.#reject(reply, job.attempt, reason);
    this.#take(job, target, reply, subject === chatAnySubject);
  }

  /** Why this job cannot run here now, or null. */
  #refusal(job: JobMessage): RejectReason | null {
    const asleepMs = this.#d.now() - this.#lastTickMs;
    if (asleepMs > DISPATCH_LIMITS.acceptMs) this.#wakeUp();
    if (this.#isWaking) return "stale";
    if (this.#isDraining) return "draining";
    if (this.#inFlight >= this.#d.slots) return "full";
    const model = job.request?.model;
    const isKnown = model === undefined || this.#d.backends.has(model);
    return isKnown ? null : "unknown_model";
  }

  #reject(reply: string, attempt: number, reason: RejectReason): void {
    this.#d.metrics.rejected(reason);
    const worker = this.#d.workerId;
    const retryAfterMs = reason === "full" ? FULL_RETRY_MS : null;
    const payload = { worker, reason, retryAfterMs };
    this.#publish(reply, encodeRejectFrame(attempt, payload));
  }

  #take(
    received: JobMessage,
    target: { edgeId: string; requestId: string },
    reply: string,
    mustAccept: boolean,
  ): void {
    // May throw, so it comes before anything is counted.
    const assembly = received.body && new BodyAssembly(received.body.bytes);
    const { workerId } = this.#d;
    const span = startWorkSpan("chat job", {
      kind: "consumer",
      parent: received.traceparent,
      attributes: {
        "gateway.request_id": publicRequestId(target.requestId),
        "gateway.worker_id": workerId,
        "gateway.attempt": received.attempt,
      },
    });
    const job = new Job({
      ...target,
      attempt: received.attempt,
      workerId,
      reply,
      deadlineAtMs: this.#d.now() + received.deadlineMs,
      span,
    }, this.#host);
    // An edge that sends a request again has abandoned the previous attempt.
    const older = this.#jobs.get(target.requestId);
    older?.sender.cancel("not_accepted");
    this.#jobs.set(target.requestId, job);
    this.#inFlight += 1;
    this.#onEdgeSeen(target.edgeId);
    if (assembly !== undefined) job.expect(assembly);
    if (received.request === undefined) return;
    if (mustAccept) job.accept();
    void job.run(received.request);
  }

  #onControl({ data, reply = "" }: BusMessage): void {
    this.#publish(reply, EMPTY); // Only a probe has a reply subject.
    const now = this.#clock.now();
    for (const record of decodeControl(data)) {
      this.#jobs.get(record.requestId)?.sender.onControl(record, now);
    }
  }

  #onPiece({ data, reply = "", subject }: BusMessage): void {
    const piece = decodePiece(data);
    if (piece === null) return;
    this.#jobs.get(lastToken(subject))
      ?.onPiece(piece, () => this.#publish(reply, EMPTY));
  }

  /** Reports how a job ended to the metrics, the log and the trace. */
  #onSlotFree(job: Job): void {
    this.#inFlight -= 1;
    const report = job.report();
    const { requestId, edgeId, attempt, span } = job.options;
    this.#d.metrics.ended(report);
    this.#d.log.info("job", {
      requestId: publicRequestId(requestId),
      edgeId,
      attempt,
      ...report,
      firstByteMs: report.firstByteMs && roundMs(report.firstByteMs),
      durationMs: roundMs(report.durationMs),
    });
    span.end({
      "gateway.outcome": report.outcome,
      "gen_ai.request.model": report.model ?? "",
      "gen_ai.usage.input_tokens": report.promptTokens ?? 0,
      "gen_ai.usage.output_tokens": report.completionTokens,
    }, report.errorCode);
    this.#checkIdle();
  }

  #onFinished(job: Job): void {
    this.#d.metrics.finished(job.sender);
    const { requestId } = job.options;
    // A second attempt may already have replaced it.
    if (this.#jobs.get(requestId) === job) this.#jobs.delete(requestId);
    this.#checkIdle();
  }

  /**
   * Rejects the jobs that piled up while this process was stalled, which their edges
   * have sent elsewhere by now. Once a flush returns, all of them have been read.
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

  /** Whether every job ended and was acknowledged in time. */
  #idleWithin(timeoutMs: number): Promise<boolean> {
    if (this.#jobs.size === 0) return Promise.resolve(true);
    const idle = new Promise<void>((resolve) => this.#onIdle = resolve);
    return settlesWithin(idle, timeoutMs);
  }

  #checkIdle(): void {
    if (this.#jobs.size === 0) this.#onIdle?.();
  }
}

/**
 * Receives jobs from the bus, runs as many at once as it has slots, and sends their
 * answers. Every job is accepted or rejected at once: none waits here, because an
 * edge knows better which other worker has a free slot.
 */
import { decodeControl } from "../bus/control.ts";
import {
  encodeFrames,
  encodeRejectFrame,
  type FrameOf,
  type RejectReason,
} from "../bus/frame.ts";
import {
  decodeJob,
  decodePiece,
  encodeWorkerBeat,
  type JobMessage,
} from "../bus/job.ts";
import {
  type BusMessage,
  type BusSubscription,
  FlowWatch,
} from "../bus/link.ts";
import type { BusLink } from "../bus/link_nats.ts";
import { createOutbox, type Outbox } from "../bus/outbox.ts";
import {
  lastToken,
  parseEdgeStream,
  subjects,
  type WorkerFamily,
} from "../bus/subjects.ts";
import { DISPATCH_LIMITS, UPLOAD_LIMITS } from "../limits.ts";
import {
  type MonotonicNow,
  SteadyClock,
  type WallNow,
} from "../process/clock.ts";
import type { Log } from "../process/log.ts";
import { LiveMap } from "../process/maps.ts";
import { settlesWithin } from "../process/serve.ts";
import {
  type FrameTarget,
  Job,
  type JobReport,
  type RunRequest,
} from "./job.ts";
import type { WorkerMetrics } from "./metrics.ts";

export interface WorkerDependencies {
  family: WorkerFamily;
  workerId: string;
  /** By the id of the model. */
  runners: ReadonlyMap<string, RunRequest>;
  now: MonotonicNow;
  wallNow: WallNow;
  log: Log;
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "publish" | "subscribe" | "flush"
  >;
  slots: number;
  metrics: WorkerMetrics;
  /** Runs a function after so long; 0: at the end of this turn of the event loop. */
  schedule: (flush: () => void, waitMs: number) => void;
  /**
   * Backends are stopped when the bus has been down for this long. Default
   * `DISPATCH_LIMITS.busLostMs`.
   */
  busLostMs?: number;
}

/** How often {@link Worker.tick} must be called. */
export const WORKER_TICK_MS = 50;
/**
 * A busy worker pauses between two reads of a stream, for each running job this long: a
 * read then brings several tokens. A model generates one every 10 to 50 ms.
 */
const PAUSE_MS_PER_JOB = 0.4;
const PAUSE_MS_MAX = 80;
/**
 * How long a stream that must stop may read what arrived during the pause, which
 * counts.
 */
const LAST_READ_MS = 5;
/** With fewer jobs than this, pauses are rarely worthwhile. */
export const BUSY_JOBS_MIN = 16;
/** A full worker asks edges to send nothing for this long, or until its next beat. */
const FULL_RETRY_MS = 100;
/**
 * After the grace period, jobs that are still running have this long to report that
 * they were stopped.
 */
const ABORT_MS = 1_000;

const EMPTY = new Uint8Array(0);

export class Worker {
  inFlight = 0;
  isDraining = false;
  /** By request id, until their edges have the whole answers. */
  readonly jobs = new LiveMap<Job>();
  readonly #edgeSeenAtMs = new Map<string, number>();
  readonly #jobSubscriptions: BusSubscription[] = [];
  readonly #clock: SteadyClock;
  readonly #flow: FlowWatch;
  /**
   * Frames, by edge, that one message carries at the end of this turn of the event
   * loop.
   */
  readonly #outbox: Outbox<FrameOf<Uint8Array>>;
  /**
   * Set until a flush proves that all jobs that piled up during a stall have been read.
   */
  #isWaking = false;
  #lastTickMs: number;
  #lastBeatMs = -Infinity;
  #uploadBytes = 0;
  #onIdle: (() => void) | null = null;
  #pausing: PromiseWithResolvers<void> | null = null;

  constructor(readonly dependencies: WorkerDependencies) {
    const { now } = dependencies;
    this.#lastTickMs = now();
    this.#clock = new SteadyClock(now);
    this.#flow = new FlowWatch(dependencies.bus, now);
    const schedule = (flush: () => void) => dependencies.schedule(flush, 0);
    this.#outbox = createOutbox(schedule, (edgeId, frames) => {
      const subject = subjects.edgeFrames(edgeId);
      for (const each of encodeFrames(frames)) {
        this.#publish(subject, each);
      }
    });
  }

  steadyNow(): number {
    return this.#clock.now();
  }

  /** Counts bytes of uploads that jobs hold. False if there is no room for them. */
  growUploads(bytes: number): boolean {
    const total = this.#uploadBytes + bytes;
    if (bytes > 0 && total > UPLOAD_LIMITS.workerBytesMax) return false;
    this.#uploadBytes = total;
    return true;
  }

  /** Sends a frame to the edge of a job. */
  sendFrame({ edgeId, requestId }: FrameTarget, frame: Uint8Array): void {
    this.#outbox.add(edgeId, [requestId, frame]);
  }

  /** Subscribes to jobs. Resolves when the bus has registered the subscriptions. */
  async start(): Promise<void> {
    const { bus, family, workerId } = this.dependencies;
    const onJob = (message: BusMessage) => this.#onJob(message);
    this.#jobSubscriptions.push(
      bus.subscribe(subjects.job(family, workerId), onJob),
      bus.subscribe(subjects.anyWorker(family), onJob, {
        queue: `${family}-worker`,
      }),
    );
    const control = subjects.control(family, workerId);
    bus.subscribe(control, (m) => this.#onControl(m));
    bus.subscribe(subjects.bodies(family, workerId), (m) => this.#onPiece(m));
    bus.subscribe(subjects.edgeBeats, (m) => {
      this.#edgeSeenAtMs.set(lastToken(m.subject), this.#clock.now());
    });
    await bus.flush();
    // The bus flows from here on: losing it before the first tick counts as an outage.
    this.#flow.look();
    this.#beat(this.dependencies.now());
  }

  /** Advances time: beats, deadlines, repeats, lost edges. */
  tick(): void {
    const now = this.dependencies.now();
    this.#clock.tick();
    this.#wakeUpAt(now);
    this.#lastTickMs = now;
    if (now - this.#lastBeatMs >= DISPATCH_LIMITS.workerBeatMs) this.#beat(now);
    for (const job of this.jobs.values()) job.onTick(now);
    this.#followBus(now);
  }

  #followBus(now: number): void {
    if (this.#flow.look()) {
      // No edge could be received in the meantime, so every silence starts over.
      const steadyMs = this.#clock.now();
      const seen = this.#edgeSeenAtMs;
      for (const edge of seen.keys()) seen.set(edge, steadyMs);
      for (const { sender } of this.jobs.values()) sender.onReconnect(steadyMs);
      this.#beat(now);
    }
    const { busLostMs = DISPATCH_LIMITS.busLostMs } = this.dependencies;
    const { lostForMs } = this.#flow;
    const isBusGone = lostForMs >= busLostMs;
    if (lostForMs > 0 && !isBusGone) return;
    const oldestMs = this.#clock.now() - DISPATCH_LIMITS.edgeLostMs;
    for (const [edge, seenAtMs] of this.#edgeSeenAtMs) {
      if (!isBusGone && seenAtMs > oldestMs) continue;
      this.#edgeSeenAtMs.delete(edge);
      for (const { options, sender } of this.jobs.values()) {
        if (options.edgeId === edge) sender.cancel("edge_lost");
      }
    }
  }

  /** All pauses end at once, so that one message carries what all streams read then. */
  pause(): Promise<void> | undefined {
    if (this.inFlight < BUSY_JOBS_MIN) return;
    if (this.#pausing === null) {
      const waitMs = Math.min(this.inFlight * PAUSE_MS_PER_JOB, PAUSE_MS_MAX);
      this.dependencies.schedule(() => this.#endPause(), waitMs);
    }
    return (this.#pausing ??= Promise.withResolvers()).promise;
  }

  #endPause(): void {
    this.#pausing?.resolve();
    this.#pausing = null;
  }

  /**
   * Ends a pause and runs this when its streams have read what had arrived; else runs
   * it at once.
   */
  afterPause(run: () => void): void {
    if (this.#pausing === null) return run();
    this.#endPause();
    this.dependencies.schedule(run, LAST_READ_MS);
  }

  /**
   * Finishes the running jobs, and stops the rest after `graceMs`. Resolves at the
   * latest {@link ABORT_MS} later.
   */
  async drain(graceMs: number): Promise<void> {
    this.isDraining = true;
    this.#beat(this.dependencies.now());
    if (!await this.#isIdleWithin(graceMs)) {
      for (const job of this.jobs.values()) {
        job.stop("server_shutdown", "The server is shutting down.");
      }
      await this.#isIdleWithin(ABORT_MS);
    }
    // Not earlier: until now, jobs that still arrived were rejected as `draining`.
    await Promise.all(this.#jobSubscriptions.map((s) => s.drain()));
    this.#outbox.flush();
  }

  #onJob({ data, reply = "", subject }: BusMessage): void {
    const { log, family } = this.dependencies;
    const target = parseEdgeStream(reply);
    const message = decodeJob(data);
    if (target === null || message === null) {
      const message = "A job, or the subject for its answer, cannot be read";
      return log.warn("job_unreadable", { replySubject: reply, message });
    }
    if ("mismatchedAttempt" in message) {
      const { mismatchedAttempt } = message;
      return this.#reject(target, mismatchedAttempt, "unsupported_version");
    }
    const reason = this.#refusal(message);
    if (reason !== null) return this.#reject(target, message.attempt, reason);
    const { edgeId, requestId } = target;
    // May throw, so it comes before anything is counted.
    const job = new Job({ edgeId, requestId, message }, this);
    // An edge that sends a request again has abandoned the previous attempt.
    this.jobs.get(requestId)?.sender.cancel("not_accepted");
    this.jobs.set(requestId, job);
    this.inFlight += 1;
    this.#edgeSeenAtMs.set(edgeId, this.#clock.now());
    job.start(subject === subjects.anyWorker(family));
  }

  /** Why this job cannot run here now, or null. */
  #refusal(job: JobMessage): RejectReason | null {
    const { now, slots, runners } = this.dependencies;
    this.#wakeUpAt(now());
    if (this.#isWaking) return "stale";
    if (this.isDraining) return "draining";
    if (this.inFlight >= slots) return "full";
    const isUnknown = job.request && !runners.has(job.request.model);
    return isUnknown ? "unknown_model" : null;
  }

  #reject(to: FrameTarget, attempt: number, reason: RejectReason): void {
    this.dependencies.metrics.jobRejects.with(reason).add();
    const worker = this.dependencies.workerId;
    const retryAfterMs = reason === "full" ? FULL_RETRY_MS : null;
    const payload = { worker, reason, retryAfterMs };
    this.sendFrame(to, encodeRejectFrame(attempt, payload));
  }

  #onControl({ data, reply = "" }: BusMessage): void {
    this.#publish(reply, EMPTY); // Only a probe has a reply subject.
    const now = this.#clock.now();
    for (const record of decodeControl(data)) {
      this.jobs.get(record.requestId)?.sender.onControl(record, now);
    }
  }

  #onPiece({ data, reply = "", subject }: BusMessage): void {
    const piece = decodePiece(data);
    const job = this.jobs.get(lastToken(subject));
    if (piece) job?.onPiece(piece, () => this.#publish(reply, EMPTY));
  }

  /** The backend of a job has finished. */
  onSlotFree(report: JobReport): void {
    this.inFlight -= 1;
    this.dependencies.metrics.ended(report);
  }

  /**
   * The edge has the whole answer or no longer needs it, so the job can be forgotten.
   */
  onFinished(job: Job): void {
    const { metrics } = this.dependencies;
    metrics.framesSent.add(job.sender.framesSent);
    metrics.framesRepeated.add(job.sender.framesRepeated);
    const { requestId } = job.options;
    // A second attempt may already have replaced it.
    if (this.jobs.get(requestId) === job) this.jobs.delete(requestId);
    if (this.jobs.size === 0) this.#onIdle?.();
  }

  /**
   * After a stall, rejects the jobs that piled up, which their edges have sent
   * elsewhere by now.
   */
  #wakeUpAt(nowMs: number): void {
    const stalledMs = Math.round(nowMs - this.#lastTickMs);
    if (stalledMs <= DISPATCH_LIMITS.acceptMs || this.#isWaking) return;
    this.#isWaking = true;
    const { metrics, log, bus } = this.dependencies;
    metrics.wakeUps.add();
    log.warn("woke_up", {
      stalledMs,
      message: "This process stood still; it rejects the jobs that piled up",
    });
    bus.flush().catch((error: unknown) =>
      // Without the bus no jobs have piled up.
      log.debug("wake_up_flush_failed", { error })
    ).finally(() => this.#isWaking = false);
  }

  #beat(now: number): void {
    this.#lastBeatMs = now;
    const { workerId, family, slots, runners } = this.dependencies;
    const { inFlight, isDraining: draining } = this;
    const models = [...runners.keys()];
    const beat = { family, slots, inFlight, draining, models };
    this.#publish(subjects.workerBeat(workerId), encodeWorkerBeat(beat));
  }

  #publish(subject: string, payload: Uint8Array): void {
    if (!this.dependencies.bus.isConnected || subject === "") return;
    try {
      this.dependencies.bus.publish(subject, payload);
    } catch (error) {
      // Frames are repeated from the replay buffer, beats by the next beat.
      this.dependencies.log.debug("publish_failed", { subject, error });
    }
  }

  /** Whether every job ended and was acknowledged in time. */
  #isIdleWithin(timeoutMs: number): Promise<boolean> {
    if (this.jobs.size === 0) return Promise.resolve(true);
    const idle = new Promise<void>((resolve) => this.#onIdle = resolve);
    return settlesWithin(idle, timeoutMs);
  }
}

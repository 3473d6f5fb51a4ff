/**
 * Receives jobs from the bus, runs as many at once as it has slots, and sends their
 * answers. Every job is accepted or rejected at once: none waits here, because an
 * edge knows better which other worker has a free slot.
 */
import { decodeControl } from "../bus/stream/control.ts";
import { encodeFrames, type FrameOf } from "../bus/stream/frame.ts";
import { encodeRejectFrame } from "../bus/stream/payloads.ts";
import {
  decodeJob,
  decodePiece,
  encodeWorkerBeat,
  type JobMessage,
  type WorkerBeat,
} from "../bus/job.ts";
import {
  type BusMessage,
  type BusSubscription,
  FlowWatch,
} from "../bus/link.ts";
import type { BusLink } from "../bus/link_nats.ts";
import { Outbox } from "../bus/outbox.ts";
import { lastToken, parseEdgeStream, subjects } from "../bus/subjects.ts";
import { DISCOVERY_LIMITS } from "../bus/server_lists.ts";
import { DISPATCH_LIMITS } from "../limits.ts";
import { SteadyClock } from "../process/clock.ts";
import { LiveMap } from "../process/maps.ts";
import { settlesWithin } from "../process/lifecycle/serve.ts";
import { Job, type JobHost } from "./jobs/job.ts";
import type { FrameTarget, JobEnvironment } from "./jobs/job_ports.ts";
import { followKeptStops } from "./jobs/kept_stops.ts";
import { tellRunningJobs } from "./jobs/running.ts";
import type { WorkerLists } from "./models/discovery.ts";
import type { WorkerCounters } from "./jobs/job_report.ts";
import { JobStarts } from "./jobs/job_starts.ts";
import { KnownEdges } from "./known_edges.ts";
import { type Refusal, refusalOf, UNSUPPORTED } from "./refusal.ts";
import { StreamPauses } from "./stream_pauses.ts";

/** What a worker needs, apart from the bus and clocks that its jobs use, too. */
export interface WorkerDependencies
  extends Omit<JobEnvironment, "steadyClock"> {
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "publish" | "subscribe" | "flush"
  >;
  /** Returns the models of a beat. Default: all that `runners` has. */
  models?: () => Iterable<string>;
  /** Returns what a beat says of its list of models. */
  listState?: () => Pick<WorkerBeat, "mistake">;
  /** Jobs that run at once. A further one is rejected. */
  slots: number;
  metrics: WorkerCounters;
  /** What its servers list, if they are asked; `runners` has these models, too. */
  lists?: WorkerLists;
  /**
   * Backends are stopped when the bus has been down for this long. Default
   * `DISPATCH_LIMITS.busLostMs`.
   */
  busLostMs?: number;
}

/** How often {@link Worker.tick} must be called. */
export const WORKER_TICK_MS = 50;
/**
 * After the grace period, jobs that are still running have this long to report that
 * they were stopped.
 */
const ABORT_MS = 1_000;

const EMPTY = new Uint8Array(0);

/** One worker process on the bus, with its slots and the jobs that have them. */
export class Worker implements JobHost {
  readonly #dependencies: WorkerDependencies;
  readonly #environment: JobEnvironment;
  /** Jobs by request id, until their edges have the whole answers. */
  readonly #jobs = new LiveMap<Job>();
  readonly #edges: KnownEdges;
  readonly #jobSubscriptions: BusSubscription[] = [];
  readonly #clock: SteadyClock;
  readonly #flow: FlowWatch;
  readonly #starts: JobStarts;
  readonly #pauses: StreamPauses;
  /**
   * Frames, by edge, that one message carries at the end of this turn of the event
   * loop.
   */
  readonly #outbox: Outbox<FrameOf<Uint8Array>>;
  #inFlight = 0;
  #isDraining = false;
  /**
   * Set until a flush proves that all jobs that piled up during a stall have been read.
   */
  #isWaking = false;
  #lastTickMs: number;
  #lastBeatMs = -Infinity;
  /** When the lists of servers were told last, and which. */
  #toldAtMs = -Infinity;
  #toldRevision = -1;
  /** Resolves when no job is left, for which a drain waits. */
  #idle: PromiseWithResolvers<void> | null = null;

  constructor(dependencies: WorkerDependencies) {
    const { now } = dependencies;
    this.#dependencies = dependencies;
    this.#lastTickMs = now();
    this.#clock = new SteadyClock(now);
    this.#environment = { ...dependencies, steadyClock: this.#clock };
    this.#edges = new KnownEdges({
      ...dependencies,
      clock: this.#clock,
      publish: (subject, payload) => this.#publish(subject, payload),
    });
    this.#pauses = new StreamPauses(dependencies.schedule);
    this.#flow = new FlowWatch(dependencies.bus, now);
    this.#starts = new JobStarts(dependencies);
    const schedule = (flush: () => void) => dependencies.schedule(flush, 0);
    this.#outbox = new Outbox(schedule, (edgeId, frames) => {
      const subject = subjects.edgeFrames(edgeId);
      for (const each of encodeFrames(frames)) {
        this.#publish(subject, each);
      }
    });
  }

  /** Jobs that have a slot. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /** Whether it accepts no more jobs, because the process will end. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** The jobs of {@link jobCount}, oldest first. */
  get jobs(): readonly Job[] {
    return this.#jobs.values();
  }

  /** Jobs whose edges do not have the whole answers yet. */
  get jobCount(): number {
    return this.#jobs.size;
  }

  /** Sends a frame to the edge of a job. */
  sendFrame({ edgeId, requestId }: FrameTarget, frame: Uint8Array): void {
    this.#outbox.add(edgeId, [requestId, frame]);
  }

  /** Subscribes to jobs. Resolves when the bus has registered the subscriptions. */
  async start(): Promise<void> {
    const { bus, family, workerId } = this.#dependencies;
    const onJob = (message: BusMessage) => this.#onJob(message);
    this.#jobSubscriptions.push(
      bus.subscribe(subjects.job(family, workerId), onJob),
      bus.subscribe(subjects.anyWorker(family), onJob, {
        queue: `${family}-worker`,
      }),
    );
    tellRunningJobs({ bus, workerId, worker: this });
    if (family === "chat") followKeptStops({ bus, worker: this });
    const control = subjects.control(family, workerId);
    bus.subscribe(control, (m) => this.#onControl(m));
    bus.subscribe(subjects.bodies(family, workerId), (m) => this.#onPiece(m));
    const onFree = () => this.#onUnneeded();
    this.#edges.listen({ onNew: () => this.#tellLists(), onFree });
    await bus.flush();
    // The bus flows from here on: losing it before the first tick counts as an outage.
    this.#flow.look();
    this.#beat(this.#dependencies.now());
  }

  /** Advances time: beats, deadlines, repeats, lost edges. */
  tick(): void {
    const now = this.#dependencies.now();
    this.#clock.tick();
    this.#wakeUpAt(now);
    this.#lastTickMs = now;
    if (now - this.#lastBeatMs >= DISPATCH_LIMITS.workerBeatMs) this.#beat(now);
    const { lists, memory, slots } = this.#dependencies;
    if ((lists?.revision ?? -1) !== this.#toldRevision) this.#tellLists();
    memory.tick();
    if (!this.#isDraining) this.#edges.turns.onTick(slots - this.#inFlight);
    for (const job of this.#jobs.values()) job.onTick(now);
    this.#followBus(now);
  }

  #followBus(now: number): void {
    if (this.#flow.look()) {
      this.#edges.forgive();
      for (const { sender } of this.#jobs.values()) {
        sender.onReconnect(this.#clock.now());
      }
      this.#beat(now);
    }
    const { busLostMs = DISPATCH_LIMITS.busLostMs } = this.#dependencies;
    const { lostForMs } = this.#flow;
    const isBusGone = lostForMs >= busLostMs;
    if (lostForMs > 0 && !isBusGone) return;
    for (const edge of this.#edges.takeLost(isBusGone ? "all" : "silent")) {
      for (const { options, sender } of this.#jobs.values()) {
        if (options.edgeId === edge) sender.cancel("edge_lost");
      }
    }
  }

  pause(): Promise<void> | undefined {
    return this.#pauses.pause(this.#inFlight);
  }

  afterPause(run: () => void): void {
    this.#pauses.after(run);
  }

  /**
   * Finishes the running jobs, and stops the rest after `graceMs`. Resolves at the
   * latest {@link ABORT_MS} later.
   */
  async drain(graceMs: number): Promise<void> {
    this.#isDraining = true;
    this.#beat(this.#dependencies.now());
    if (!await this.#isIdleWithin(graceMs)) {
      for (const job of this.#jobs.values()) {
        job.stop("server_shutdown", "The server is shutting down.");
      }
      await this.#isIdleWithin(ABORT_MS);
    }
    // Not earlier: until now, jobs that still arrived were rejected as `draining`.
    await Promise.all(this.#jobSubscriptions.map((s) => s.drain()));
    this.#outbox.flush();
  }

  #onJob({ data, reply = "", subject }: BusMessage): void {
    const { log, family } = this.#dependencies;
    const target = parseEdgeStream(reply);
    const message = decodeJob(data);
    if (target === null || message === null) {
      const message = "A job, or the subject for its answer, cannot be read";
      return log.warn("job_unreadable", { replySubject: reply, message });
    }
    if ("mismatchedOffer" in message) {
      return this.#reject(target, message.mismatchedOffer, UNSUPPORTED);
    }
    const { edgeId, requestId } = target;
    const refusal = this.#refusal(message, edgeId);
    const { turns } = this.#edges;
    if (refusal !== null) {
      turns.onRejectedJob(edgeId, refusal.reason);
      return this.#reject(target, message.attempt, refusal);
    }
    turns.onJob(edgeId, message.queuedTokens);
    // May throw, so it comes before anything is counted.
    const job = new Job({ edgeId, requestId, message }, {
      host: this,
      environment: this.#environment,
    });
    // An edge that sends a request again has abandoned the previous offer.
    this.#jobs.get(requestId)?.sender.cancel("not_accepted");
    this.#jobs.set(requestId, job);
    this.#inFlight += 1;
    this.#edges.onSign(edgeId);
    // Its edge does not know yet which worker has it.
    const isForAny = subject === subjects.anyWorker(family);
    this.#starts.start(job, isForAny ? "at once" : "by the next tick");
  }

  #refusal(job: JobMessage, edgeId: string): Refusal | null {
    const { now, slots, runners } = this.#dependencies;
    this.#wakeUpAt(now());
    return refusalOf(job, {
      isWaking: this.#isWaking,
      isDraining: this.#isDraining,
      inFlight: this.#inFlight + this.#edges.turns.keptBesides(edgeId),
      slots,
      runners,
    });
  }

  #reject(to: FrameTarget, offerNumber: number, refusal: Refusal): void {
    const { metrics, workerId: worker } = this.#dependencies;
    metrics.rejected(refusal.reason);
    const payload = { worker, ...refusal };
    this.sendFrame(to, encodeRejectFrame(offerNumber, payload));
  }

  /** A job that was accepted finds its servers at limits: its edge queues it again. */
  onHandedBack({ options }: Job, waitMs: number): void {
    const { attempt } = options.message;
    const refusal = { reason: "saturated", retryAfterMs: waitMs } as const;
    this.#reject(options, attempt, refusal);
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
    const job = this.#jobs.get(lastToken(subject));
    if (piece) job?.onPiece(piece, () => this.#publish(reply, EMPTY));
  }

  /** The backend of a job has finished. */
  onSlotFree({ options, report }: Job): void {
    this.#inFlight -= 1;
    this.#dependencies.metrics.ended(report);
    const { edgeId, requestId, message: { request } } = options;
    if (this.#isDraining) return;
    this.#edges.turns.onSlotFree(edgeId, request?.model ?? null, requestId);
  }

  /** No edge needs a kept slot: the next tick tells all that it is free. */
  #onUnneeded(): void {
    this.#lastBeatMs = -Infinity;
  }

  /** The edge has the whole answer or needs it no more: the job can be forgotten. */
  onFinished(job: Job): void {
    this.#dependencies.metrics.sent(job.sender);
    const { edgeId, requestId } = job.options;
    if (!this.#edges.turns.onEndTaken(edgeId, requestId)) this.#onUnneeded();
    // A second offer may already have replaced it.
    if (this.#jobs.get(requestId) === job) this.#jobs.delete(requestId);
    if (this.#jobs.size === 0) this.#idle?.resolve();
  }

  /**
   * After a stall, rejects the jobs that piled up, which their edges have sent
   * elsewhere by now.
   */
  #wakeUpAt(nowMs: number): void {
    const stalledMs = Math.round(nowMs - this.#lastTickMs);
    if (stalledMs <= DISPATCH_LIMITS.acceptMs || this.#isWaking) return;
    this.#isWaking = true;
    const { metrics, log, bus } = this.#dependencies;
    metrics.wokeUp();
    log.warn("woke_up", {
      stalledMs,
      message: "This process stood still; it rejects the jobs that piled up",
    });
    bus.flush().catch((error: unknown) =>
      // Without the bus no jobs have piled up.
      log.debug("wake_up_flush_failed", { error })
    ).finally(() => {
      this.#isWaking = false;
    });
  }

  /** Tells all edges at once what the servers list. */
  #tellLists(): void {
    if (this.#dependencies.lists === undefined) return;
    this.#toldAtMs = -Infinity;
    this.#beat(this.#dependencies.now());
  }

  #beat(now: number): void {
    this.#lastBeatMs = now;
    const { workerId, family, slots, models, lists } = this.#dependencies;
    const isDue = now - this.#toldAtMs >= DISCOVERY_LIMITS.tellMs;
    const listsDue = isDue ? lists : undefined;
    if (listsDue !== undefined) {
      this.#toldAtMs = now;
      this.#toldRevision = listsDue.revision;
    }
    const beat = {
      family,
      slots,
      inFlight: this.#inFlight + this.#edges.turns.kept,
      draining: this.#isDraining,
      models: [...models?.() ?? this.#dependencies.runners.keys()],
      ...listsDue && { listed: listsDue.current },
      ...this.#dependencies.listState?.(),
    };
    this.#publish(subjects.workerBeat(workerId), encodeWorkerBeat(beat));
  }

  #publish(subject: string, payload: Uint8Array): void {
    if (!this.#dependencies.bus.isConnected || subject === "") return;
    try {
      this.#dependencies.bus.publish(subject, payload);
    } catch (error) {
      // Frames are repeated from the replay buffer, beats by the next beat.
      this.#dependencies.log.debug("publish_failed", { subject, error });
    }
  }

  /** Whether every job ended and was acknowledged in time. */
  #isIdleWithin(timeoutMs: number): Promise<boolean> {
    if (this.#jobs.size === 0) return Promise.resolve(true);
    this.#idle ??= Promise.withResolvers();
    return settlesWithin(this.#idle.promise, timeoutMs);
  }
}

/**
 * The runs of an edge and what they share. Routes every frame to its run and drives
 * their timers.
 */
import { z } from "zod";
import type { CancelReason } from "@gateway/shared/bus/stream/control";
import { decodeFrames, parsePayload } from "@gateway/shared/bus/stream/frame";
import { decodeWorkerBeat } from "@gateway/shared/bus/job";
import {
  FlowWatch,
  isNoResponders,
  NoRespondersError,
} from "@gateway/shared/bus/link";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { answerStrayFrame } from "@gateway/shared/bus/stream/receiver";
import {
  lastToken,
  parseEdgeStream,
  subjects,
} from "@gateway/shared/bus/subjects";
import { decodeTurn } from "@gateway/shared/bus/waiting";
import {
  DISPATCH_LIMITS,
  STREAM_LIMITS,
  UPLOAD_LIMITS,
  VIDEO_LIMITS,
} from "@gateway/shared/limits";
import { QUEUE_DEFAULT, type QueueTerms } from "@gateway/shared/models/queue";
import type { ApiError } from "@gateway/shared/openai/error";
import { type MonotonicNow, SteadyClock } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import { LiveMap, remember } from "@gateway/shared/process/maps";
import { settlesWithin } from "@gateway/shared/process/lifecycle/serve";
import { EdgeBeats } from "./edge_beats.ts";
import { EdgeBus, type EdgeBusOptions } from "./edge_bus.ts";
import type { AnswerSink, RunJob, RunOutcome, StartedRun } from "./outcome.ts";
import type { ListedModels } from "@gateway/shared/models/listed_models";
import { Run } from "./run.ts";
import { WholeBody } from "./request_body.ts";
import {
  busUnavailable,
  downloadTooSlow,
  keyRevoked,
  requestStopped,
  uploadTooSlow,
} from "./run_errors.ts";
import type { OverRun, RunTools } from "./run_ports.ts";
import { WaitQueue } from "./queue/wait_queue.ts";
import { type Worker, WorkerTable } from "./workers.ts";

/** What an edge's dispatcher needs. */
export interface DispatcherOptions extends EdgeBusOptions {
  now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  random: () => number;
  log: Log;
  /** The longest that a run may take, in any state. */
  requestTimeoutMs: number;
  /** The error of a model that an operator has disabled; null: it is not. */
  refusalOf?: (model: string) => ApiError | null;
  /** How requests for a model wait. Default: {@link QUEUE_DEFAULT} for all. */
  queueOf?: (model: string) => QueueTerms | undefined;
  /** What the workers' servers list. Default: nobody wants to know. */
  listed?: Pick<ListedModels, "take" | "lost" | "tick">;
  /** Runs fail when the bus is down for longer. Default {@link DISPATCH_LIMITS}. */
  busLostMs?: number;
}

/**
 * The notice of key-admin to stop the running requests of a key. Others are ignored.
 */
const stopNoticeSchema = z.object({
  keyId: z.string(),
  action: z.literal("stop"),
});
/** Stopped keys that are remembered, for requests whose admission is in progress. */
const STOPPED_KEYS_MAX = 1_000;

/** The runs of an edge, the workers that it knows, and the requests that wait. */
export class Dispatcher {
  readonly workers: WorkerTable;
  readonly queue: WaitQueue;
  readonly bus: EdgeBus;
  readonly beats: EdgeBeats;
  readonly #options: DispatcherOptions;
  readonly #clock: SteadyClock;
  readonly #tools: RunTools;
  readonly #runs = new LiveMap<Run>();
  readonly #flow: FlowWatch;
  readonly #stoppedAtMs = new Map<string, number>();
  /** Resolves when no run is left; made when somebody waits for that. */
  #idle: PromiseWithResolvers<void> | null = null;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    const { bus, now, random, log, requestTimeoutMs } = options;
    const { refusalOf = () => null, queueOf = () => undefined } = options;
    const clock = new SteadyClock(now);
    const queue = new WaitQueue(now);
    this.queue = queue;
    this.#clock = clock;
    this.#flow = new FlowWatch(bus, now);
    this.bus = new EdgeBus(options);
    this.beats = new EdgeBeats({ now, queue, bus: this.bus });
    this.workers = new WorkerTable({
      now: () => clock.now(),
      random,
      onLost: (worker) => this.#onLost(worker),
      onSlotFreed: () => this.#onSlotFreed(),
    });
    this.#tools = {
      bus: this.bus,
      workers: this.workers,
      queue,
      clock: { now, steadyNow: () => clock.now() },
      log,
      requestTimeoutMs,
      refusalOf,
      onOver: (run) => this.#onOver(run),
      queueOf: (model) =>
        (model === null ? undefined : queueOf(model)) ?? QUEUE_DEFAULT,
    };
  }

  /** How many runs have not ended, including those that wait for a worker. */
  get running(): number {
    return this.#runs.size;
  }

  /**
   * Starts a run. `sink` receives its answer; `onEnded` is called exactly once, at its
   * end.
   */
  start(
    job: RunJob,
    sink: AnswerSink,
    onEnded: (outcome: RunOutcome) => void,
  ): StartedRun {
    const run = new Run(job, { sink, onEnded }, this.#tools);
    this.#runs.set(job.requestId, run);
    run.start();
    return run;
  }

  /** Subscribes, and starts beats and ticks. Returns a function that stops these. */
  async join(bus: Pick<BusLink, "subscribe" | "flush">): Promise<() => void> {
    const { edgeId } = this.#options;
    bus.subscribe(subjects.edgeFrames(edgeId), (message) => {
      this.onFrameMessage(message.data);
    });
    bus.subscribe(subjects.edgeStreams(edgeId), (message) => {
      if (isNoResponders(message)) this.onNoResponders(message.subject);
    });
    bus.subscribe(subjects.workerBeats, ({ subject, data }) => {
      this.onBeatMessage(subject, data);
    });
    bus.subscribe(subjects.edgeTurns(edgeId), ({ data }) => {
      this.onTurnMessage(data);
    });
    bus.subscribe(subjects.keyChanged, ({ data }) => this.onKeyMessage(data));
    await bus.flush();
    // The bus flows from here on: losing it before the first tick counts as an outage.
    this.tick();
    this.beats.beat();
    const timers = [
      setInterval(() => this.beats.beat(), DISPATCH_LIMITS.edgeBeatMs),
      setInterval(() => this.tick(), STREAM_LIMITS.tickMs),
    ];
    return () => timers.forEach((timer) => clearInterval(timer));
  }

  /** A message of a worker, with frames of any number of answers. */
  onFrameMessage(data: Uint8Array): void {
    const frames = decodeFrames(data);
    if (frames === null) {
      const message = "A message of a worker could not be read";
      this.#options.log.warn("frame_unreadable", { message });
    }
    for (const [requestId, frame] of frames ?? []) {
      const isTaken = this.#runs.get(requestId)?.onFrame(frame) ?? false;
      if (isTaken) continue;
      answerStrayFrame(requestId, frame, (workerId, record) => {
        const family = this.workers.familyOf(workerId);
        this.bus.control(family, workerId, record);
      });
    }
  }

  /** The bus says that a job, whose reply subject this is, had no subscriber. */
  onNoResponders(replySubject: string): void {
    const target = parseEdgeStream(replySubject);
    if (target === null) return;
    // Just after an outage of the bus, a worker may not have reconnected yet.
    this.#followBus();
    this.#runs.get(target.requestId)?.onNoResponders(target.offerNumber);
  }

  /** A message on a worker's beat subject. Ignores one of another version. */
  onBeatMessage(subject: string, data: Uint8Array): void {
    const beat = decodeWorkerBeat(data);
    if (beat === null) return;
    const workerId = lastToken(subject);
    if (beat.listed !== undefined) {
      this.#options.listed?.take(workerId, beat.listed);
    }
    if (this.workers.onBeat(workerId, beat)) this.queue.offer();
  }

  /** A worker keeps a slot for this edge, or passes one of its slots to another. */
  onTurnMessage(data: Uint8Array): void {
    const turn = decodeTurn(data);
    if (turn === null) return;
    const { workers, queue, bus } = this;
    workers.onTurn(turn);
    if (turn.slot === "passed") return;
    queue.offer();
    if (!workers.endTurn()) return;
    bus.returnTurn(workers.familyOf(turn.worker), turn.worker);
  }

  /** Stops all runs; their clients get the error. */
  cancelAll(reason: CancelReason, error: ApiError): void {
    this.#forEach((run) => run.cancel(reason, error));
  }

  /** A notice of key-admin. */
  onKeyMessage(data: Uint8Array): void {
    const notice = parsePayload(stopNoticeSchema, data);
    if (notice !== null) this.stopKey(notice.keyId);
  }

  /**
   * A key was disabled together with its running requests. Its state, which every
   * request reads, needs no notice.
   */
  stopKey(keyId: string): void {
    const nowMs = this.#options.now();
    remember(this.#stoppedAtMs, {
      key: keyId,
      value: nowMs,
      sizeMax: STOPPED_KEYS_MAX,
    });
    let requests = 0;
    this.#forEach((run) => {
      if (run.job.keyId !== keyId) return;
      run.cancel("key_revoked", keyRevoked());
      requests += 1;
    });
    this.#options.log.info("key_requests_stopped", { keyId, requests });
  }

  /** The runs that have not ended, oldest first. */
  runs(): readonly Pick<Run, "job" | "workerId" | "progress">[] {
    return this.#runs.values();
  }

  /** Stops a request of an account. False if it does not run here. */
  stopRequest(requestId: string, account: string): boolean {
    const run = this.#runs.get(requestId);
    if (run === null || run.job.account !== account) return false;
    run.cancel("request_stopped", requestStopped());
    return true;
  }

  /** Whether the requests of a key were stopped at that time or later. */
  isStoppedSince(keyId: string, sinceMs: number): boolean {
    return (this.#stoppedAtMs.get(keyId) ?? -Infinity) >= sinceMs;
  }

  /**
   * Await it before the limiter is stopped: a cancelled run waits a moment for its
   * worker to report the cost.
   */
  idleWithin(timeoutMs: number): Promise<boolean> {
    if (this.#runs.size === 0) return Promise.resolve(true);
    this.#idle ??= Promise.withResolvers<void>();
    return settlesWithin(this.#idle.promise, timeoutMs);
  }

  /** Advances time. Must be called every `STREAM_LIMITS.tickMs`. */
  tick(): void {
    this.#clock.tick();
    const nowMs = this.#options.now();
    this.#followBus();
    // A worker's pause may have ended.
    this.queue.offer();
    this.#makeWay(nowMs);
    this.#forEach((run) => run.onTick(nowMs));
    this.beats.tick();
    this.#options.listed?.tick();
  }

  /**
   * Ends the latest of the uploads and downloads that hold a slot while their clients
   * hardly send or read anything, if another request waits for one. One at a tick: its
   * slot is free at the next.
   */
  #makeWay(nowMs: number): void {
    if (this.queue.length === 0) return;
    const [latest] = this.#runs.values().filter((run) =>
      run.lateMs(nowMs) >=
        (isUpload(run) ? UPLOAD_LIMITS.pieceMs : VIDEO_LIMITS.lateMs) &&
      this.queue.hasWaitingFor(run.place.family)
    ).sort((a, b) => b.lateMs(nowMs) - a.lateMs(nowMs));
    if (latest === undefined) return;
    const error = isUpload(latest) ? uploadTooSlow() : downloadTooSlow();
    latest.cancel("slow_client", error);
  }

  #followBus(): void {
    if (this.#flow.look()) {
      this.workers.onBusRestored();
      this.#forEach((run) => run.onBusRestored());
      this.queue.offer();
    }
    const { lostForMs } = this.#flow;
    const { busLostMs = DISPATCH_LIMITS.busLostMs } = this.#options;
    if (lostForMs >= busLostMs) {
      this.#forEach((run) => run.fail(busUnavailable()));
    }
    // While the bus is down, no beat can arrive: silence proves nothing.
    if (lostForMs > 0) return;
    for (const workerId of this.workers.sweep()) this.#probe(workerId);
  }

  /** Asks a worker whether it is alive. A timeout proves little: its beats decide. */
  #probe(workerId: string): void {
    this.bus.probe(this.workers.familyOf(workerId), workerId).then(
      () => this.workers.onAnswer(workerId),
      (error: unknown) => {
        if (error instanceof NoRespondersError) {
          this.workers.onMissing(workerId);
        }
      },
    );
  }

  /**
   * Offers the slot to those that wait, at the end of this turn: the run that freed it
   * has not finished yet.
   */
  #onSlotFreed(): void {
    if (this.queue.length > 0) queueMicrotask(() => this.queue.offer());
  }

  #onOver({ place, job }: OverRun): void {
    this.queue.remove(place);
    this.#runs.delete(job.requestId);
    if (this.#runs.size === 0) this.#idle?.resolve();
  }

  #onLost({ id: workerId, draining }: Pick<Worker, "id" | "draining">): void {
    this.#options.listed?.lost(workerId);
    const runs = this.#runs.values().filter((run) => run.workerId === workerId);
    if (draining && runs.length === 0) return; // It was told to stop.
    this.#options.log.warn("worker_lost", {
      workerId,
      requests: runs.length,
      message: "A worker stopped responding; another one takes its requests, " +
        "unless their answers have started: those end with an error",
    });
    for (const run of runs) run.onWorkerLost();
  }

  #forEach(event: (run: Run) => void): void {
    for (const run of this.#runs.values()) event(run);
  }
}

const isUpload = ({ job: { body } }: Run) => !(body instanceof WholeBody);

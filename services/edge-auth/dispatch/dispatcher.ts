/**
 * The runs of an edge and what they share. Routes every frame to its run and drives
 * their timers.
 */
import { z } from "zod";
import {
  type CancelReason,
  CONTROL_PROBE,
  type ControlRecord,
  encodeControl,
} from "@gateway/shared/bus/control";
import { decodeFrames, parsePayload } from "@gateway/shared/bus/frame";
import { decodeWorkerBeat } from "@gateway/shared/bus/job";
import * as link from "@gateway/shared/bus/link";
import type { BusLink } from "@gateway/shared/bus/link_nats";
import { createOutbox, type Outbox } from "@gateway/shared/bus/outbox";
import { answerStrayFrame } from "@gateway/shared/bus/stream_receiver";
import {
  lastToken,
  parseEdgeStream,
  subjects,
  type WorkerFamily,
} from "@gateway/shared/bus/subjects";
import { LiveMap, remember } from "@gateway/shared/process/maps";
import { type MonotonicNow, SteadyClock } from "@gateway/shared/process/clock";
import { DISPATCH_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import { ApiError } from "@gateway/shared/openai/error";
import { settlesWithin } from "@gateway/shared/process/serve";
import type { AnswerSink, RunJob, RunOutcome } from "./outcome.ts";
import { busUnavailable, Run } from "./run.ts";
import { createWorkerTable, type Worker, type WorkerTable } from "./workers.ts";

export interface DispatcherOptions {
  bus: Pick<
    BusLink,
    "isConnected" | "flowingSinceMs" | "receivedAtMs" | "publish" | "request"
  >;
  edgeId: string;
  now: MonotonicNow;
  random: () => number;
  scheduleSoon: (flush: () => void) => void;
  log: Log;
  requestTimeoutMs: number;
  busLostMs?: number;
}

/** The part of a run that the receiver of its answer may use. */
export type StartedRun = Pick<Run, "delivered" | "cancel">;

/**
 * A control record waits this long for others, so that under load one message carries
 * dozens.
 */
export const CONTROL_WAIT_MS = 10;
const PROBE_TIMEOUT_MS = 300;
const EMPTY = new Uint8Array(0);
/**
 * The notice of key-admin to stop the running requests of a key. Others are ignored.
 */
const stopNoticeSchema = z.object({
  keyId: z.string(),
  action: z.literal("stop"),
});
/** Stopped keys that are remembered, for requests whose admission is in progress. */
const STOPPED_KEYS_MAX = 1_000;

export class Dispatcher {
  readonly workers: WorkerTable;
  readonly queue = new WaitQueue();
  readonly options: DispatcherOptions;
  readonly #clock: SteadyClock;
  readonly #runs = new LiveMap<Run>();
  /** Control records to be sent, by the subject of their worker. */
  readonly outbox: Outbox<ControlRecord>;
  readonly #flow: link.FlowWatch;
  readonly #stoppedAtMs = new Map<string, number>();
  #onIdle: (() => void) | null = null;

  constructor(options: DispatcherOptions) {
    this.options = options;
    const { bus, now, random } = options;
    this.#clock = new SteadyClock(now);
    this.workers = createWorkerTable({ now: () => this.steadyNow(), random });
    this.#flow = new link.FlowWatch(bus, now);
    this.outbox = createOutbox(options.scheduleSoon, (subject, records) => {
      this.publish(subject, encodeControl(records));
    });
  }

  /** Excludes the time in which this process was stalled. */
  steadyNow(): number {
    return this.#clock.now();
  }

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
    const run: Run = new Run(this, job, sink, (outcome) => {
      this.queue.remove(run);
      this.#runs.delete(job.requestId);
      if (this.#runs.size === 0) this.#onIdle?.();
      onEnded(outcome);
    });
    this.#runs.set(job.requestId, run);
    run.start();
    return run;
  }

  /** Subscribes, and starts beats and ticks. Returns a function that stops these. */
  async join(bus: Pick<BusLink, "subscribe" | "flush">): Promise<() => void> {
    const { edgeId } = this.options;
    bus.subscribe(subjects.edgeFrames(edgeId), (message) => {
      this.onFrameMessage(message.data);
    });
    bus.subscribe(subjects.edgeStreams(edgeId), (message) => {
      if (link.isNoResponders(message)) this.onNoResponders(message.subject);
    });
    bus.subscribe(subjects.workerBeats, ({ subject, data }) => {
      this.onBeatMessage(subject, data);
    });
    bus.subscribe(subjects.keyChanged, ({ data }) => this.onKeyMessage(data));
    await bus.flush();
    // The bus flows from here on: losing it before the first tick counts as an outage.
    this.tick();
    const beat = () => {
      const { bus } = this.options;
      if (bus.isConnected) bus.publish(subjects.edgeBeat(edgeId), EMPTY);
    };
    beat();
    const timers = [
      setInterval(beat, DISPATCH_LIMITS.edgeBeatMs),
      setInterval(() => this.tick(), STREAM_LIMITS.tickMs),
    ];
    return () => timers.forEach((timer) => clearInterval(timer));
  }

  onFrameMessage(data: Uint8Array): void {
    const frames = decodeFrames(data);
    if (frames === null) {
      const message = "A message of a worker could not be read";
      this.options.log.warn("frame_unreadable", { message });
    }
    for (const [requestId, frame] of frames ?? []) {
      const isTaken = this.#runs.get(requestId)?.onFrame(frame) ?? false;
      if (isTaken) continue;
      answerStrayFrame(requestId, frame, (workerId, record) => {
        const family = this.workers.familyOf(workerId);
        this.control(family, workerId, record);
      });
    }
  }

  onNoResponders(replySubject: string): void {
    const target = parseEdgeStream(replySubject);
    if (target === null) return;
    // Just after an outage of the bus, a worker may not have reconnected yet.
    this.#followBus();
    this.#runs.get(target.requestId)?.onNoResponders(target.attempt);
  }

  /** A message on a worker's beat subject. Ignores one of another version. */
  onBeatMessage(subject: string, data: Uint8Array): void {
    const beat = decodeWorkerBeat(data);
    if (beat === null) return;
    if (this.workers.onBeat(lastToken(subject), beat)) this.queue.offer();
  }

  cancelAll(reason: CancelReason, error: ApiError): void {
    this.#forEach((run) => run.cancel(reason, error));
  }

  onKeyMessage(data: Uint8Array): void {
    const notice = parsePayload(stopNoticeSchema, data);
    if (notice !== null) this.stopKey(notice.keyId);
  }

  /**
   * A key was disabled together with its running requests. Its state, which every
   * request reads, needs no notice.
   */
  stopKey(keyId: string): void {
    const nowMs = this.options.now();
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
    this.options.log.info("key_requests_stopped", { keyId, requests });
  }

  isStoppedSince(keyId: string, sinceMs: number): boolean {
    return (this.#stoppedAtMs.get(keyId) ?? -Infinity) >= sinceMs;
  }

  /**
   * Await it before the limiter is stopped: a cancelled run waits a moment for its
   * worker to report the cost.
   */
  idleWithin(timeoutMs: number): Promise<boolean> {
    if (this.#runs.size === 0) return Promise.resolve(true);
    const idle = new Promise<void>((resolve) => this.#onIdle = resolve);
    return settlesWithin(idle, timeoutMs);
  }

  /** Advances time. Must be called every `STREAM_LIMITS.tickMs`. */
  tick(): void {
    this.#clock.tick();
    const nowMs = this.options.now();
    this.#followBus();
    // A worker's pause may have ended.
    this.queue.offer();
    this.#forEach((run) => run.onTick(nowMs));
  }

  #followBus(): void {
    if (this.#flow.look()) {
      this.workers.onBusRestored();
      this.#forEach((run) => run.onBusRestored());
      this.queue.offer();
    }
    const { lostForMs } = this.#flow;
    const { busLostMs = DISPATCH_LIMITS.busLostMs } = this.options;
    if (lostForMs >= busLostMs) {
      this.#forEach((run) => run.fail(busUnavailable()));
    }
    // While the bus is down, no beat can arrive: silence proves nothing.
    if (lostForMs > 0) return;
    const { probe, lost } = this.workers.sweep();
    for (const worker of lost) this.#onLost(worker);
    for (const workerId of probe) this.#probe(workerId);
  }

  /** Asks a worker whether it is alive. A timeout proves little: its beats decide. */
  #probe(workerId: string): void {
    const family = this.workers.familyOf(workerId);
    const subject = subjects.control(family, workerId);
    this.options.bus.request(subject, CONTROL_PROBE, {
      timeoutMs: PROBE_TIMEOUT_MS,
    }).then(() => this.workers.onAnswer(workerId), (error: unknown) => {
      if (error instanceof link.NoRespondersError) {
        this.onWorkerMissing(workerId);
      }
    });
  }

  onWorkerMissing(workerId: string): void {
    const lost = this.workers.onMissing(workerId);
    if (lost !== undefined) this.#onLost(lost);
  }

  /**
   * Offers it to those that wait, at the end of this turn: the run that freed it has
   * not finished yet.
   */
  onSlotFreed(): void {
    if (this.queue.length > 0) queueMicrotask(() => this.queue.offer());
  }

  #onLost({ id: workerId, draining }: Pick<Worker, "id" | "draining">): void {
    const runs = this.#runs.values().filter((run) => run.workerId === workerId);
    if (draining && runs.length === 0) return; // It was told to stop.
    this.options.log.warn("worker_lost", {
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

  control(family: WorkerFamily, workerId: string, record: ControlRecord): void {
    this.outbox.add(subjects.control(family, workerId), record);
  }

  /** False if the bus cannot send it now. */
  publish(subject: string, payload: Uint8Array, reply?: string): boolean {
    try {
      const options = reply === undefined ? {} : { reply };
      this.options.bus.publish(subject, payload, options);
      return true;
    } catch (error) {
      // Acknowledgements are repeated and jobs wait; the bus link logs its own state.
      this.options.log.debug("publish_failed", { subject, error });
      return false;
    }
  }
}

/** The error of a request whose key was disabled together with its running requests. */
export function keyRevoked(): ApiError {
  return new ApiError("key_revoked", "The API key was revoked.");
}

interface Waiting {
  readonly model: string;
  readonly sinceMs: number;
  /** Starts it, or returns false if there is no free slot for its model. */
  offer(): boolean;
}

/** Requests that wait for a free slot: first come, first served. */
export class WaitQueue {
  readonly #waiting: Waiting[] = [];

  get length(): number {
    return this.#waiting.length;
  }

  hasWaiting(model: string): boolean {
    return this.#waiting.some((item) => item.model === model);
  }

  /** Adds an item ahead of those that have waited less. False if the queue is full. */
  push(item: Waiting): boolean {
    if (this.length >= DISPATCH_LIMITS.queueMax) return false;
    const isOlder = ({ sinceMs }: Waiting) => sinceMs <= item.sinceMs;
    this.#waiting.splice(this.#waiting.findLastIndex(isOlder) + 1, 0, item);
    return true;
  }

  remove(item: Waiting): void {
    const index = this.#waiting.indexOf(item);
    if (index >= 0) this.#waiting.splice(index, 1);
  }

  /**
   * Offers the items, the oldest first. If one does not start, later ones for its model
   * are not offered.
   */
  offer(): void {
    const refused = new Set<string>();
    for (const item of [...this.#waiting]) {
      // It may have been removed in the meantime.
      if (refused.has(item.model) || !this.#waiting.includes(item)) continue;
      if (item.offer()) this.remove(item);
      else refused.add(item.model);
    }
  }
}

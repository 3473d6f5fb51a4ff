/** A worker on a bus and with clocks that a test moves by hand. */
import assert from "node:assert/strict";
import { type ControlRecord, encodeControl } from "../bus/stream/control.ts";
import {
  decodeFrames,
  encodeJson,
  type Frame,
  FrameType,
} from "../bus/stream/frame.ts";
import { parseErr, parseReject } from "../bus/stream/payloads.ts";
import {
  decodeWorkerBeat,
  encodePiece,
  encodeUploadEnd,
  JOB_VERSION,
  type JobMessage,
} from "../bus/job.ts";
import type { BusHandler } from "../bus/link.ts";
import { subjects } from "../bus/subjects.ts";
import { decodeTurn, encodeEdgeBeat, encodeReturn } from "../bus/waiting.ts";
import { silentLog } from "../process/log.ts";
import { MetricRegistry } from "../process/metrics.ts";
import type { JobContext, RunRequest } from "./jobs/job_ports.ts";
import { WorkerMemory } from "./jobs/memory.ts";
import { WorkerMetrics } from "./metrics.ts";
import { Worker, WORKER_TICK_MS } from "./worker.ts";

const WORKER = "w1";
const EDGE = "e1";
const MODEL = "m";
const FAMILY = "media";
const PIECE_REPLY = "piece.reply";
/** What the edge asks for, unless a test names another model. */
export const REQUEST = { model: MODEL, stream: true };

const idOf = (number: number) => number.toString(16).padStart(32, "0");

/** Resolves when what is ready to run has run. */
export const turns = () => new Promise<void>((resolve) => setTimeout(resolve));

/** A backend that sends one line, and ends when it is stopped and released. */
export class SilentBackend {
  readonly calls: JobContext[] = [];
  readonly run: RunRequest;

  /** `released`: when it ends once it was stopped. Default: at once. */
  constructor(released: Promise<void> = Promise.resolve()) {
    this.run = async (_request, context) => {
      this.calls.push(context);
      void context.write("a\n", 1);
      await abortOf(context.signal);
      await released;
      throw new Error("stopped");
    };
  }

  /** Which calls were stopped. */
  aborted(): boolean[] {
    return this.calls.map((context) => context.signal.aborted);
  }
}

/** Resolves when the signal aborts. */
export function abortOf(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => resolve());
  return promise;
}

/** The bus of one worker: keeps what it publishes, and delivers when asked to. */
class FakeBus {
  readonly isConnected = true;
  flowingSinceMs: number | null = 0;
  readonly frames: Frame[] = [];
  /** How many pieces were acknowledged. */
  acknowledged = 0;
  /** What edges were told of slots. */
  readonly turns: string[] = [];
  /** How many jobs it runs, as its last beat has it. */
  beatInFlight: number | undefined;
  readonly #handlers = new Map<string, BusHandler>();
  readonly #flushes: (() => void)[] = [];

  publish(subject: string, payload: Uint8Array): void {
    if (subject === PIECE_REPLY) this.acknowledged += 1;
    const [, edge] = /edge\.(\w+)\.turns$/.exec(subject) ?? [];
    if (edge !== undefined) {
      this.turns.push(`${edge} ${decodeTurn(payload)?.slot}`);
    }
    if (subject === subjects.workerBeat(WORKER)) {
      this.beatInFlight = decodeWorkerBeat(payload)?.inFlight;
    }
    // Anything else is a beat.
    if (subject !== subjects.edgeFrames(EDGE)) return;
    const frames = decodeFrames(payload) ?? [];
    this.frames.push(...frames.map(([, frame]) => frame));
  }

  subscribe(subject: string, handler: BusHandler) {
    this.#handlers.set(subject, handler);
    return { drain: () => Promise.resolve() };
  }

  flush(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#flushes.push(resolve);
    return promise;
  }

  async endFlushes(): Promise<void> {
    for (const resolve of this.#flushes.splice(0)) resolve();
    await turns();
  }

  deliver(
    subscription: string,
    data: Uint8Array,
    { subject = subscription, reply = "" } = {},
  ): void {
    this.#handlers.get(subscription)?.({ subject, data, reply });
  }
}

/** A function that the worker wants to be run later. */
interface Scheduled {
  run: () => void;
  waitMs: number;
}

/** A worker that has started. Requests are known by small numbers. */
export class WorkerRig {
  nowMs = 0;
  readonly scheduled: Scheduled[] = [];
  readonly worker: Worker;
  readonly memory: WorkerMemory;
  readonly #bus = new FakeBus();

  private constructor(
    {
      slots = 2,
      run = new SilentBackend().run,
      heldBytesMax,
      saturatedMs = () => 0,
    }: RigOptions,
  ) {
    const runners = new Map([[MODEL, run]]);
    this.memory = new WorkerMemory(heldBytesMax, () => this.nowMs);
    this.worker = new Worker({
      bus: this.#bus,
      family: FAMILY,
      workerId: WORKER,
      slots,
      runners: Object.assign(runners, { saturatedMs }),
      now: () => this.nowMs,
      wallNow: () => 0,
      schedule: (run, waitMs) => {
        if (waitMs === 0) run();
        else this.scheduled.push({ run, waitMs });
      },
      memory: this.memory,
      metrics: new WorkerMetrics(new MetricRegistry()),
      log: silentLog,
    });
  }

  static async start(options: RigOptions = {}): Promise<WorkerRig> {
    const rig = new WorkerRig(options);
    const started = rig.worker.start();
    await rig.endFlushes();
    await started;
    return rig;
  }

  /** The frames that its edge got. */
  get frames(): readonly Frame[] {
    return this.#bus.frames;
  }

  /** How many pieces the worker has acknowledged. */
  get acknowledged(): number {
    return this.#bus.acknowledged;
  }

  /** The reasons of the rejections that its edge got. */
  get rejections() {
    return this.frames.filter(({ type }) => type === FrameType.REJECT)
      .map(({ payload }) => parseReject(payload)?.reason);
  }

  /** The errors that its edge got. */
  get errors() {
    return this.frames.filter(({ type }) => type === FrameType.ERR)
      .map(({ payload }) => parseErr(payload) ?? assert.fail("malformed"));
  }

  get errorCodes() {
    return this.errors.map(({ error }) => error.code);
  }

  endFlushes(): Promise<void> {
    return this.#bus.endFlushes();
  }

  /** From now on the worker hears nothing from the bus, until `hear`. */
  deafen(): void {
    this.#bus.flowingSinceMs = null;
  }

  hear(): void {
    this.#bus.flowingSinceMs = this.nowMs;
  }

  /** How many jobs its last beat has. */
  get beatInFlight(): number | undefined {
    return this.#bus.beatInFlight;
  }

  /** What edges were told of slots since the last call. */
  takeTurns(): string[] {
    return this.#bus.turns.splice(0);
  }

  /** An edge beats, and tells how many requests wait for the model. */
  edgeBeats(edge = EDGE, requests = 0): void {
    const waits = { requests, tokens: requests, weight: 1, oldestMs: 1_000 };
    const waiting = new Map(requests === 0 ? [] : [[MODEL, waits]]);
    this.#bus.deliver(subjects.edgeBeats, encodeEdgeBeat(waiting), {
      subject: subjects.edgeBeat(edge),
    });
  }

  /** An edge does not need the slot that is kept for it. */
  returnTurn(edge: string): void {
    const subject = subjects.turnReturns(FAMILY, WORKER);
    this.#bus.deliver(subject, encodeReturn(edge));
  }

  job(id: number, { offerNumber = 1, model = MODEL, edge = EDGE } = {}): void {
    const request = { ...REQUEST, model };
    this.#offer(id, { attempt: offerNumber, request }, edge);
  }

  /** A job whose request follows in pieces. */
  announce(id: number): void {
    this.#offer(id, { upload: true });
  }

  piece(id: number, bytes: Uint8Array, index: number): void {
    this.#deliverPiece(id, encodePiece(bytes, 1, index));
  }

  endPieces(id: number): void {
    this.#deliverPiece(id, encodeUploadEnd({ files: [] }, 1));
  }

  /** Ends an upload of files with these lengths. */
  endFiles(id: number, lengths: readonly number[]): void {
    const files = lengths.map((bytes) => (
      { field: "file", name: "f", type: "t", bytes }
    ));
    this.#deliverPiece(id, encodeUploadEnd({ request: REQUEST, files }, 1));
  }

  ack(id: number, sequence: number): void {
    const requestId = idOf(id);
    this.#control({ type: "ack", requestId, offerNumber: 1, sequence });
  }

  cancel(id: number, offerNumber = 1): void {
    const requestId = idOf(id);
    const reason = "client_gone";
    this.#control({ type: "cancel", reason, requestId, offerNumber });
  }

  tickTo(ms: number): void {
    while (this.nowMs < ms) {
      this.nowMs = Math.min(ms, this.nowMs + WORKER_TICK_MS);
      this.worker.tick();
    }
  }

  #offer(id: number, job: Partial<JobMessage>, edge = EDGE): void {
    const envelope = { version: JOB_VERSION, attempt: 1, deadlineMs: 60_000 };
    const message = encodeJson({ ...envelope, ...job });
    const reply = subjects.edgeStream(edge, idOf(id), 1);
    this.#bus.deliver(subjects.job(FAMILY, WORKER), message, { reply });
  }

  #deliverPiece(id: number, message: Uint8Array): void {
    this.#bus.deliver(subjects.bodies(FAMILY, WORKER), message, {
      subject: subjects.body(FAMILY, WORKER, idOf(id)),
      reply: PIECE_REPLY,
    });
  }

  #control(record: ControlRecord): void {
    const message = encodeControl([record]);
    this.#bus.deliver(subjects.control(FAMILY, WORKER), message);
  }
}

/** What a test may choose. */
export interface RigOptions {
  /** Default: 2. */
  slots?: number;
  /** Default: a {@link SilentBackend}. */
  run?: RunRequest;
  /** How long the servers of the model are at limits. Default: they are not. */
  saturatedMs?: () => number;
  /** What all bodies may hold. Default: that of a real worker. */
  heldBytesMax?: number;
}

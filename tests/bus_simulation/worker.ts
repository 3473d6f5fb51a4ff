/** The side of the bus that runs requests, in a simulated run. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import {
  type CancelReason,
  decodeControl,
} from "@gateway/shared/bus/stream/control";
import {
  decodeFrame,
  encodeFrames,
  FRAME_HEADER_BYTES,
  FrameType,
} from "@gateway/shared/bus/stream/frame";
import { encodeRejectFrame } from "@gateway/shared/bus/stream/payloads";
import { Outbox } from "@gateway/shared/bus/outbox";
import {
  type SenderOutcome,
  StreamSender,
} from "@gateway/shared/bus/stream/sender";
import { usageOf } from "../support/model_servers/scripted_model_server.ts";
import { type OfferRecord, Process, type World } from "./world.ts";

/** A CANCEL or ACK that was lost is made good with the next BEAT or END. */
const STOP_MS = 2_500;
/** A worker is done with an offer at the latest this long after the edge. */
const GRACE_MS = 35_000;

/** What a worker knows of an edge: a process that takes the frames of its answers. */
export interface FrameTaker extends Process {
  /** Takes the frames of one message. */
  onFrames(message: Uint8Array): void;
}

/** A job as the bus carries it here: with its edge itself, not the name of one. */
export interface Job {
  requestId: string;
  /** From 1: a request that is dispatched again has the next one. */
  offerNumber: number;
  /** Gets the frames of the answer. */
  edge: FrameTaker;
  record: OfferRecord;
}

/** A frame that waits for the end of its turn, and what its bytes were before. */
interface WaitingFrame {
  requestId: string;
  frame: Uint8Array;
  copy: Uint8Array;
}

/** A simulated chat-worker: takes jobs, runs scripts for backends, drives senders. */
export class Worker extends Process {
  readonly #runs = new Map<string, Run>();
  /** The edges of all jobs that have come, by id. */
  readonly #edges = new Map<string, FrameTaker>();
  /**
   * Frames, by edge, that wait for the end of this turn. Messages are encoded then, as
   * a real worker does: until then a frame is a view of memory that its sender owns and
   * must not use again.
   */
  readonly #outbox: Outbox<WaitingFrame>;

  constructor(id: string, world: World) {
    super(id, world);
    this.#outbox = new Outbox(
      (flush) => world.scheduler.after(0, () => this.post(flush)),
      (edgeId, frames) => this.#publish(edgeId, frames),
    );
  }

  /** Offers whose senders are not finished. */
  get runCount(): number {
    return this.isDead ? 0 : this.#runs.size;
  }

  onJob(job: Job): void {
    const key = keyOf(job);
    this.#edges.set(job.edge.id, job.edge);
    if (this.#runs.has(key)) return;
    if (this.world.random.chance(this.world.profile.rejectShare)) {
      const { id: worker } = this;
      const reject = { worker, reason: "full", retryAfterMs: null } as const;
      return this.send(job, encodeRejectFrame(job.offerNumber, reject));
    }
    const run = new Run(job, this, () => this.#runs.delete(key));
    this.#runs.set(key, run);
    this.startTicking();
    run.start();
  }

  onControl(message: Uint8Array): void {
    const records = decodeControl(message);
    assert(records.length > 0);
    for (const record of records) {
      const run = this.#runs.get(keyOf(record));
      run?.sender.onControl(record, this.steadyMs);
    }
  }

  send({ edge, requestId }: Job, frame: Uint8Array): void {
    const copy = frame.slice();
    this.#outbox.add(edge.id, { requestId, frame, copy });
  }

  #publish(edgeId: string, waiting: readonly WaitingFrame[]): void {
    const edge = this.#edges.get(edgeId);
    assert(edge !== undefined);
    const frames = waiting.map(({ requestId, frame, copy }) => {
      if (Buffer.compare(frame, copy) !== 0) {
        assert.fail(`a frame of ${requestId} changed before it was sent`);
      }
      return [requestId, frame] as const;
    });
    for (const message of encodeFrames(frames)) {
      this.world.publish(this, edge, () => edge.onFrames(message));
    }
  }

  override onReconnect(): void {
    for (const { sender } of [...this.#runs.values()]) {
      sender.onReconnect(this.steadyMs);
    }
  }

  override onTick(): boolean {
    for (const { job: { edge }, sender } of [...this.#runs.values()]) {
      const isEdgeLost = this.world.profile.hasBeats &&
        edge.silenceMs >= DISPATCH_LIMITS.edgeLostMs;
      if (isEdgeLost) sender.cancel("edge_lost");
      else sender.onTick(this.steadyMs);
    }
    return this.#runs.size > 0;
  }
}

/** One offer at its worker: a script and the sender that it speaks through. */
class Run {
  readonly sender: StreamSender;
  readonly #world: World;
  readonly #record: OfferRecord;
  readonly #script: OfferRecord["script"];
  /** By when a cancelled offer ends in calm weather. */
  readonly #stopAtOnceMs: number;
  #step = 0;
  #isWaitingForRoom = false;
  #highestSent = 0;
  #resentWindow = 0;
  #resentBytes = 0;

  constructor(
    readonly job: Job,
    readonly worker: Worker,
    readonly onFinished: () => void,
  ) {
    const { id: workerId, steadyMs: nowMs, world } = worker;
    const { limits, profile } = world;
    this.#world = world;
    this.#record = job.record;
    this.#script = job.record.script;
    this.#stopAtOnceMs = 100 + 3 * profile.link.delayMsMax;
    this.sender = new StreamSender({
      offerNumber: job.offerNumber,
      workerId,
      nowMs,
      limits,
    }, {
      sendFrame: (frame) => this.#sendFrame(frame),
      writable: () => this.#onWritable(),
      finished: (outcome, reason) => this.#finished(outcome, reason),
    });
  }

  start(): void {
    this.sender.accept(this.worker.steadyMs);
    this.#planStep();
  }

  #planStep(): void {
    const { waitMs = 0 } = this.#script.steps[this.#step] ?? {};
    this.#world.scheduler.after(waitMs, () => {
      this.worker.post(() => this.#say());
    });
  }

  #say(): void {
    const { sender, worker: { steadyMs } } = this;
    const record = this.#record;
    const script = this.#script;
    if (sender.isFinished) return;
    if (!sender.isWritable) {
      this.#isWaitingForRoom = true;
      this.#world.counts.blocked++;
      return;
    }
    const step = script.steps[this.#step++];
    if (step === undefined) {
      record.hasSaidEnd = true;
      const { tokens, retryable } = script;
      if (!script.fails) {
        return sender.end({ usage: usageOf(tokens) }, tokens, steadyMs);
      }
      const error = new ApiError("upstream_error", record.name);
      return sender.fail({ error, retryable, usage: null }, tokens, steadyMs);
    }
    const bytes = script.bytes.slice(record.saidBytes, step.endByte);
    record.saidBytes = step.endByte;
    record.saidTokens = step.tokens;
    sender.write(bytes, step.tokens, steadyMs);
    // The sender must have copied what its caller may use again.
    bytes.fill(0);
    const { windowBytes, framePayloadBytesMax } = this.#world.limits;
    const headers = Math.ceil(bytes.length / framePayloadBytesMax);
    const most = windowBytes + bytes.length + headers * FRAME_HEADER_BYTES;
    const { bufferedBytes } = sender;
    assert(
      bufferedBytes <= most,
      `${record.name}: sender keeps ${bufferedBytes} bytes`,
    );
    this.#planStep();
  }

  #onWritable(): void {
    assert(this.sender.isWritable);
    if (!this.#isWaitingForRoom) return;
    this.#isWaitingForRoom = false;
    this.#say();
  }

  #sendFrame(bytes: Uint8Array): void {
    const { worker, job } = this;
    const frame = decodeFrame(bytes);
    assert(frame !== null);
    const { type, sequence } = frame;
    const { name } = this.#record;
    this.#world.log(`${worker.id} sends ${type} #${sequence} of ${name}`);
    const isData = type === FrameType.DATA;
    if (isData && sequence <= this.#highestSent) {
      this.#countResent(bytes.length);
    } else if (isData) this.#highestSent = sequence;
    worker.send(job, bytes);
  }

  /**
   * Repeats have a pace: at most a NAK, a tick and a reconnection in `nakIntervalMs`.
   */
  #countResent(bytes: number): void {
    const { counts, limits, nowMs } = this.#world;
    counts.resentFrames++;
    const window = Math.floor(nowMs / limits.nakIntervalMs);
    if (window !== this.#resentWindow) this.#resentBytes = 0;
    this.#resentWindow = window;
    this.#resentBytes += bytes;
    const most = 3 * (limits.replayBytes + limits.framePayloadBytesMax + 16);
    assert(this.#resentBytes <= most, `${this.#record.name}: replay storm`);
  }

  #finished(outcome: SenderOutcome, reason: CancelReason | null): void {
    const { worker, job: { edge } } = this;
    const record = this.#record;
    const { counts, profile, nowMs } = this.#world;
    const { name, unwantedSinceMs } = record;
    this.#world.log(`${worker.id} ${outcome} ${reason} ${name}`);
    if (outcome === "cancelled") counts.cancelled++;
    if (outcome === "forgotten") {
      counts.forgotten++;
      assert(edge.isDead, `${name}: forgotten`);
    }
    if (outcome === "acked") {
      assert(record.hasSaidEnd, `${name}: acknowledged before its end`);
    }
    assert.equal(this.sender.bufferedBytes, 0);
    const isInTime = nowMs <= record.settleByMs + GRACE_MS;
    assert(isInTime, `${name}: worker was not done in time`);
    if (unwantedSinceMs !== null && !edge.isDead) {
      // An edge that lost the ACCEPT of any worker cannot cancel before the next BEAT.
      const wasQuiet = record.isWorkerKnown &&
        (unwantedSinceMs >= profile.quietMs || profile.weather === "calm");
      const fromMs = Math.max(unwantedSinceMs, profile.quietMs);
      assert(
        nowMs - unwantedSinceMs <= this.#stopAtOnceMs ||
          (!wasQuiet && nowMs - fromMs <= STOP_MS),
        `${name}: stopped too late`,
      );
    }
    this.onFinished();
  }
}

const keyOf = (
  { requestId, offerNumber }: Pick<Job, "requestId" | "offerNumber">,
) => `${requestId}.${offerNumber}`;

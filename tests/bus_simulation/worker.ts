import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { type CancelReason, decodeControl } from "@gateway/shared/bus/control";
import {
  decodeFrame,
  encodeRejectFrame,
  FRAME_HEADER_BYTES,
  FrameType,
} from "@gateway/shared/bus/frame";
import {
  type SenderOutcome,
  StreamSender,
} from "@gateway/shared/bus/stream_sender";
import { usageOf } from "../support/scripted_model_server.ts";
import { Connection } from "./bus.ts";
import type { Edge } from "./edge.ts";
import { Process } from "./process.ts";
import { type AttemptRecord, WORKER_GRACE_MS, type World } from "./world.ts";

/** A CANCEL or ACK that was lost is made good with the next BEAT or END. */
const STOP_MS = 2_500;

/** A request on its way to a worker. */
export interface Job {
  requestId: string;
  attempt: number;
  edge: Edge;
  record: AttemptRecord;
}

/** A simulated chat-worker: takes jobs, runs scripts for backends, drives senders. */
export class Worker {
  readonly process: Process;
  readonly connection: Connection;
  readonly #runs = new Map<string, Run>();

  constructor(readonly id: string, readonly world: World) {
    const { scheduler, limits } = world;
    this.process = new Process(id, scheduler, limits.tickMs);
    this.connection = new Connection(this.process);
    this.connection.onReconnect = () => {
      for (const run of [...this.#runs.values()]) {
        run.sender.onReconnect(this.process.steadyMs);
      }
    };
  }

  /** Attempts it still keeps something of. */
  get runCount(): number {
    return this.process.isDead ? 0 : this.#runs.size;
  }

  onJob(job: Job): void {
    const key = keyOf(job.requestId, job.attempt);
    if (this.#runs.has(key)) return;
    if (this.world.random.chance(this.world.profile.rejectShare)) {
      const { id: worker } = this;
      const reject = { worker, reason: "full", retryAfterMs: null } as const;
      return this.publish(job, encodeRejectFrame(job.attempt, reject));
    }
    const run = new Run(job, this, this.world, () => this.#runs.delete(key));
    this.#runs.set(key, run);
    this.process.startTicking(() => this.#tick());
    run.start();
  }

  onControl(message: Uint8Array): void {
    const records = decodeControl(message);
    assert(records.length > 0);
    for (const record of records) {
      this.#runs.get(keyOf(record.requestId, record.attempt))
        ?.sender.onControl(record, this.process.steadyMs);
    }
  }

  publish(job: Job, frame: Uint8Array): void {
    this.world.bus.publish(this.connection, job.edge.connection, () => {
      job.edge.onStreamMessage(job.requestId, frame);
    });
  }

  #tick(): boolean {
    const { profile } = this.world;
    for (const run of [...this.#runs.values()]) {
      const { edge } = run.job;
      const isEdgeLost = profile.hasBeats &&
        edge.process.silenceMs >= DISPATCH_LIMITS.edgeLostMs;
      if (isEdgeLost) run.sender.cancel("edge_lost");
      else run.sender.onTick(this.process.steadyMs);
    }
    return this.#runs.size > 0;
  }
}

/** One attempt at its worker: a script and the sender that it speaks through. */
class Run {
  readonly sender: StreamSender;
  #step = 0;
  #isWaitingForRoom = false;
  #highestSent = 0;
  #resentWindow = 0;
  #resentBytes = 0;

  constructor(
    readonly job: Job,
    readonly worker: Worker,
    readonly world: World,
    readonly onFinished: () => void,
  ) {
    this.sender = new StreamSender({
      attempt: job.attempt,
      workerId: worker.id,
      nowMs: worker.process.steadyMs,
      limits: world.limits,
    }, {
      sendFrame: (frame) => this.#sendFrame(frame),
      writable: () => this.#onWritable(),
      finished: (outcome, reason) => this.#finished(outcome, reason),
    });
  }

  start(): void {
    this.sender.accept(this.worker.process.steadyMs);
    this.#planStep();
  }

  #planStep(): void {
    const step = this.job.record.script.steps[this.#step];
    this.world.scheduler.after(step?.waitMs ?? 0, () => {
      this.worker.process.post(() => this.#say());
    });
  }

  #say(): void {
    if (this.sender.isFinished) return;
    if (!this.sender.isWritable) {
      this.#isWaitingForRoom = true;
      this.world.counts.blocked++;
      return;
    }
    const { record } = this.job;
    const step = record.script.steps[this.#step++];
    if (step === undefined) return this.#sayEnd();
    const bytes = record.script.bytes.slice(record.saidBytes, step.endByte);
    record.saidBytes = step.endByte;
    record.saidTokens = step.tokens;
    this.sender.write(bytes, step.tokens, this.worker.process.steadyMs);
    // The sender must have copied what its caller may use again.
    bytes.fill(0);
    const { windowBytes, framePayloadBytesMax } = this.world.limits;
    const headers = Math.ceil(bytes.length / framePayloadBytesMax);
    const most = windowBytes + bytes.length + headers * FRAME_HEADER_BYTES;
    assert(
      this.sender.bufferedBytes <= most,
      `${record.name}: sender keeps ${this.sender.bufferedBytes} bytes`,
    );
    this.#planStep();
  }

  #sayEnd(): void {
    const { record } = this.job;
    const { end, tokens } = record.script;
    const nowMs = this.worker.process.steadyMs;
    record.hasSaidEnd = true;
    if (end === "complete") {
      this.sender.end(usageOf(tokens), tokens, nowMs);
      return;
    }
    const error = new ApiError("upstream_error", record.name);
    const retryable = end === "retryable_error";
    this.sender.fail({ error, retryable, usage: null }, tokens, nowMs);
  }

  #onWritable(): void {
    assert(this.sender.isWritable);
    if (!this.#isWaitingForRoom) return;
    this.#isWaitingForRoom = false;
    this.#say();
  }

  #sendFrame(bytes: Uint8Array): void {
    const frame = decodeFrame(bytes);
    assert(frame !== null);
    this.world.log(
      `${this.worker.id} sends ${frame.type} #${frame.sequence} of ${this.job.record.name}`,
    );
    const isData = frame.type === FrameType.DATA;
    if (isData && frame.sequence <= this.#highestSent) {
      this.#countResent(bytes.length);
    } else if (isData) this.#highestSent = frame.sequence;
    this.worker.publish(this.job, bytes);
  }

  /** Repeats have a pace: at most a NAK, a tick and a reconnection in `nakIntervalMs`. */
  #countResent(bytes: number): void {
    const { counts, limits, scheduler } = this.world;
    counts.resentFrames++;
    const window = Math.floor(scheduler.nowMs / limits.nakIntervalMs);
    if (window !== this.#resentWindow) this.#resentBytes = 0;
    this.#resentWindow = window;
    this.#resentBytes += bytes;
    const most = 3 * (limits.replayBytes + limits.framePayloadBytesMax + 16);
    assert(this.#resentBytes <= most, `${this.job.record.name}: replay storm`);
  }

  #finished(outcome: SenderOutcome, reason: CancelReason | null): void {
    const { record } = this.job;
    const { counts, profile, scheduler } = this.world;
    this.world.log(`${this.worker.id} ${outcome} ${reason} ${record.name}`);
    if (outcome === "cancelled") counts.cancelled++;
    if (outcome === "forgotten") {
      counts.forgotten++;
      assert(this.job.edge.process.isDead, `${record.name}: forgotten`);
    }
    if (outcome === "acked") {
      assert(record.hasSaidEnd, `${record.name}: acknowledged before its end`);
    }
    assert.equal(this.sender.bufferedBytes, 0);
    assert(
      scheduler.nowMs <= record.settleByMs + WORKER_GRACE_MS,
      `${record.name}: worker was not done in time`,
    );
    const isEdgeAlive = !this.job.edge.process.isDead;
    if (record.unwantedSinceMs !== null && isEdgeAlive) {
      // An edge that lost the ACCEPT of any worker cannot cancel before the next BEAT.
      const wasQuiet = record.isWorkerKnown &&
        (record.unwantedSinceMs >= profile.quietMs ||
          profile.weather === "calm");
      const fromMs = Math.max(record.unwantedSinceMs, profile.quietMs);
      const atOnceMs = 100 + 3 * profile.link.delayMsMax;
      assert(
        scheduler.nowMs - record.unwantedSinceMs <= atOnceMs ||
          (!wasQuiet && scheduler.nowMs - fromMs <= STOP_MS),
        `${record.name}: stopped too late`,
      );
    }
    this.onFinished();
  }
}

function keyOf(requestId: string, attempt: number): string {
  return `${requestId}.${attempt}`;
}

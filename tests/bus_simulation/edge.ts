import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { type ControlRecord, encodeControl } from "@gateway/shared/bus/control";
import { decodeFrame, type Frame } from "@gateway/shared/bus/frame";
import { LineAssembler } from "../../services/edge-auth/chat/sse_lines.ts";
import { createOutbox, type Outbox } from "@gateway/shared/bus/outbox";
import {
  answerStrayFrame,
  type LostReason,
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream_receiver";
import { Connection } from "./bus.ts";
import { Process } from "./process.ts";
import { makeScript } from "./script.ts";
import type { Worker } from "./worker.ts";
import { assertSaid, type AttemptRecord, type World } from "./world.ts";

const ATTEMPTS_MAX = 3;
const LINE_BYTES_MAX = 1_048_576;
/** After the last fault a stream goes on or is given up: `silenceLostMs`, and a little. */
const SETTLE_MS = 12_000;
/** Sums of fractions of milliseconds. */
const ROUNDING_MS = 0.001;

/** How a request ended, as its client saw it. */
export type Outcome =
  | "complete"
  | "error"
  | LostReason
  | "worker_lost"
  | "rejected"
  | "client_gone"
  | "edge_dead";

/** A simulated edge-auth: sends jobs, drives receivers, feeds clients. */
export class Edge {
  readonly process: Process;
  readonly connection: Connection;
  readonly requests: Request[] = [];
  reconnectedMs = -Infinity;
  readonly #open = new Map<string, Request>();
  /** Records for the workers, sent at the end of this turn. */
  readonly #control: Outbox<ControlRecord>;

  constructor(
    id: string,
    readonly world: World,
    readonly workers: readonly Worker[],
  ) {
    const { scheduler, limits } = world;
    this.process = new Process(id, scheduler, limits.tickMs);
    this.connection = new Connection(this.process);
    this.#control = createOutbox(
      (flush) => scheduler.after(0, () => this.process.post(flush)),
      (workerId, records) => this.#send(workerId, encodeControl(records)),
    );
    this.connection.onReconnect = () => {
      this.reconnectedMs = scheduler.nowMs;
      for (const request of [...this.#open.values()]) {
        request.receiver?.onReconnect(this.process.steadyMs);
      }
    };
  }

  /** Requests it still keeps something of. */
  get openCount(): number {
    return this.process.isDead ? 0 : this.#open.size;
  }

  startRequest(id: string): void {
    const request = new Request(id, this, this.world);
    this.requests.push(request);
    this.process.post(() => {
      this.#open.set(id, request);
      this.process.startTicking(() => this.#tick());
      request.dispatch();
    });
  }

  close(request: Request): void {
    this.#open.delete(request.id);
  }

  /** Everything it held is gone; its clients see their connections break. */
  kill(): void {
    this.process.kill();
    for (const request of this.requests) {
      if (request.outcome === null) request.settle("edge_dead");
    }
    this.#open.clear();
  }

  onStreamMessage(requestId: string, sent: Uint8Array): void {
    const message = sent.slice();
    const frame = decodeFrame(message);
    assert(frame !== null);
    const isTaken = this.#open.get(requestId)?.onFrame(frame) ?? false;
    if (!isTaken) {
      answerStrayFrame(requestId, frame, (workerId, record) => {
        this.world.counts.strayAnswers++;
        this.tellWorker(workerId, record);
      });
    }
    // Nobody may keep a part of a message whose buffer may be used again.
    message.fill(0);
  }

  tellWorker(workerId: string, record: ControlRecord): void {
    this.#control.add(workerId, record);
  }

  #send(workerId: string, message: Uint8Array): void {
    const worker = this.workers.find(({ id }) => id === workerId);
    assert(worker !== undefined);
    this.world.bus.publish(this.connection, worker.connection, () => {
      worker.onControl(message);
    });
  }

  /** A worker for a job, dead or alive, and whether the edge chose it. */
  pickWorker(): { worker: Worker; isChosen: boolean } {
    const { profile, random } = this.world;
    const worker = this.workers[random.whole(0, this.workers.length - 1)];
    assert(worker !== undefined);
    return { worker, isChosen: !random.chance(profile.anyShare) };
  }

  #tick(): boolean {
    const { profile } = this.world;
    for (const request of [...this.#open.values()]) {
      request.onTick();
      const worker = this.workers.find(({ id }) =>
        id === request.receiver?.workerId
      );
      const silenceMs = worker?.process.silenceMs ?? 0;
      if (profile.hasBeats && silenceMs >= DISPATCH_LIMITS.workerLostMs) {
        request.loseWorker();
      }
    }
    return this.#open.size > 0;
  }
}

/** One request of a client, over all its attempts. */
export class Request {
  receiver: StreamReceiver | null = null;
  outcome: Outcome | null = null;
  record: AttemptRecord | null = null;
  readonly #clientMs: number;
  #attempt = 0;
  #deliveredBytes = 0;
  #lineBytes = 0;
  #lines = new LineAssembler(LINE_BYTES_MAX);
  #untakenSequence = 0;
  #isClientBusy = false;
  #nakMs = -Infinity;

  constructor(
    readonly id: string,
    readonly edge: Edge,
    readonly world: World,
  ) {
    this.#clientMs = world.random.between(0, world.profile.clientMsMax);
  }

  /** Sends the job to a worker: a new attempt. */
  dispatch(): void {
    assert.equal(this.#deliveredBytes, 0, "second attempt after a byte");
    const { bus, limits, log } = this.world;
    const attempt = ++this.#attempt;
    const record = this.#newRecord(`${this.id.slice(-2)}/${attempt}`);
    const { worker, isChosen } = this.edge.pickWorker();
    log(`${record.name} goes to ${worker.id}`);
    this.record = record;
    this.#nakMs = -Infinity;
    this.receiver = new StreamReceiver({
      requestId: this.id,
      attempt,
      workerId: isChosen ? worker.id : null,
      nowMs: this.edge.process.steadyMs,
      limits,
      control: (workerId, told) => this.#tell(workerId, told, record),
    });
    bus.publishOnce(this.edge.connection, worker.connection, () => {
      worker.onJob({ requestId: this.id, attempt, edge: this.edge, record });
    });
  }

  /** A frame of this request. False when it belongs to none of its attempts. */
  onFrame(frame: Frame): boolean {
    const { receiver, record } = this;
    if (receiver === null || record === null) return false;
    const event = receiver.onFrame(frame, this.edge.process.steadyMs);
    if (event.type === "stray") return false;
    assert.equal(this.outcome, null, `${record.name}: after its outcome`);
    this.#onEvent(event, receiver, record);
    return true;
  }

  onTick(): void {
    const { receiver, record } = this;
    if (receiver === null || record === null) return;
    const event = receiver.onTick(this.edge.process.steadyMs);
    this.#onEvent(event, receiver, record);
  }

  /** The client closes its connection. */
  leave(): void {
    if (this.outcome !== null) return;
    this.receiver?.cancel("client_gone");
    this.settle("client_gone");
  }

  /** The worker's beats have stopped. */
  loseWorker(): void {
    if (this.outcome !== null || this.receiver?.isOver !== false) return;
    this.receiver.cancel("worker_lost");
    this.#retryOr("worker_lost");
  }

  /** The one outcome of the request. */
  settle(outcome: Outcome): void {
    const { log, scheduler } = this.world;
    log(`${this.record?.name} is ${outcome}`);
    assert.equal(this.outcome, null, `${this.id}: two outcomes`);
    this.outcome = outcome;
    this.edge.close(this);
    if (this.record === null) return;
    this.record.unwantedSinceMs = scheduler.nowMs;
    this.record.isWorkerKnown = this.receiver?.workerId !== null;
    assert(
      scheduler.nowMs <= this.record.settleByMs,
      `${this.record.name}: settled too late`,
    );
  }

  #newRecord(name: string): AttemptRecord {
    const { limits, profile, random, scheduler } = this.world;
    const script = makeScript(name, random, profile.style, limits);
    // A slow client stops the backend once for each part of the window.
    const stops = Math.ceil(script.bytes.length / limits.ackBytes) + 1;
    return {
      name,
      script,
      saidBytes: 0,
      saidTokens: 0,
      hasSaidEnd: false,
      unwantedSinceMs: null,
      isWorkerKnown: true,
      settleByMs: Math.max(scheduler.nowMs, profile.quietMs) +
        script.durationMs + stops * (this.#clientMs + 100) + SETTLE_MS,
    };
  }

  #onEvent(
    event: StreamEvent,
    receiver: StreamReceiver,
    record: AttemptRecord,
  ): void {
    const { counts, profile: { weather } } = this.world;
    switch (event.type) {
      case "data":
        assert(receiver.isAccepted);
        this.#deliver(record, event.payload, event.sequence);
        return;
      case "rejected":
        counts.rejected++;
        this.#retryOr("rejected");
        return;
      case "ended":
        this.#assertWhole(record, receiver.tokens);
        assert.equal(record.script.end, "complete");
        assert.equal(event.usage?.completion_tokens, record.script.tokens);
        this.settle("complete");
        return;
      case "failed":
        this.#assertWhole(record, receiver.tokens);
        assert.notEqual(record.script.end, "complete");
        assert.equal(event.failure.error.message, record.name);
        if (event.failure.retryable) this.#retryOr("error");
        else this.settle("error");
        return;
      case "lost":
        this.#assertTokens(record, receiver.tokens);
        if (weather !== "rough") assert.equal(event.reason, "not_accepted");
        if (weather !== "rough") assert.equal(weather, "gentle");
        this.#retryOr(event.reason);
        return;
      case "violated":
        assert.fail(`${record.name}: violation of ${event.violation}`);
    }
  }

  /** What the worker is told, written down. */
  #tell(workerId: string, told: ControlRecord, record: AttemptRecord): void {
    const { counts, limits, log, scheduler } = this.world;
    if (told.type === "cancel") record.unwantedSinceMs ??= scheduler.nowMs;
    else log(`edge ${told.type}s #${told.sequence} of ${record.name}`);
    if (told.type === "nak") {
      counts.naks++;
      const pauseMs = scheduler.nowMs - this.#nakMs;
      assert(
        pauseMs > limits.nakIntervalMs - ROUNDING_MS ||
          this.edge.reconnectedMs === scheduler.nowMs,
        `${record.name}: NAK after ${pauseMs} ms`,
      );
      this.#nakMs = scheduler.nowMs;
    }
    this.edge.tellWorker(workerId, told);
  }

  #deliver(record: AttemptRecord, payload: Uint8Array, sequence: number): void {
    assertSaid(record, this.#deliveredBytes, payload);
    this.#deliveredBytes += payload.length;
    const lines = this.#lines.push(payload);
    assert(lines !== null);
    assertSaid(record, this.#lineBytes, lines);
    this.#lineBytes += lines.length;
    const undeliveredBytes = this.receiver?.undeliveredBytes ?? 0;
    assert(
      undeliveredBytes <= this.world.limits.windowBytes,
      `${record.name}: edge keeps ${undeliveredBytes} bytes`,
    );
    this.#untakenSequence = sequence;
    this.#feedClient();
  }

  #feedClient(): void {
    if (this.#clientMs === 0) {
      this.receiver?.delivered(this.#untakenSequence);
      return;
    }
    if (this.#isClientBusy) return;
    this.#isClientBusy = true;
    this.world.scheduler.after(this.#clientMs, () => {
      this.edge.process.post(() => {
        this.#isClientBusy = false;
        this.receiver?.delivered(this.#untakenSequence);
      });
    });
  }

  #assertWhole(record: AttemptRecord, tokens: number): void {
    assert(record.hasSaidEnd, `${record.name}: ended before its end`);
    assert.equal(this.#deliveredBytes, record.script.bytes.length, record.name);
    assert.equal(this.#lines.unfinishedBytes, 0, record.name);
    assert.equal(tokens, record.script.tokens, record.name);
  }

  /** A cut stream is settled with no less than the client got and no more than was produced. */
  #assertTokens(record: AttemptRecord, tokens: number): void {
    const got = record.script.steps.findLast(({ endByte }) =>
      endByte <= this.#deliveredBytes
    );
    assert(tokens >= (got?.tokens ?? 0), `${record.name}: ${tokens} tokens`);
    assert(tokens <= record.saidTokens, `${record.name}: ${tokens} tokens`);
  }

  #retryOr(outcome: Outcome): void {
    if (this.#deliveredBytes > 0 || this.#attempt >= ATTEMPTS_MAX) {
      this.settle(outcome);
      return;
    }
    this.world.counts.retries++;
    this.dispatch();
  }
}

/** The side of the bus that has the clients, in a simulated run. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import {
  type ControlRecord,
  encodeControl,
} from "@gateway/shared/bus/stream/control";
import { decodeFrames, type Frame } from "@gateway/shared/bus/stream/frame";
import { AnswerHeadReader } from "@gateway/shared/forward/answer_head";
import { LineAssembler } from "../../services/edge-auth/chat/sse_lines.ts";
import { Outbox } from "@gateway/shared/bus/outbox";
import {
  answerStrayFrame,
  type LostReason,
  type StreamEvent,
  StreamReceiver,
} from "@gateway/shared/bus/stream/receiver";
import { makeScript } from "./profile.ts";
import type { FrameTaker, Worker } from "./worker.ts";
import { OfferRecord, Process, type World } from "./world.ts";

const OFFERS_MAX = 3;
const LINE_BYTES_MAX = 1_048_576;
const LINE_END = new TextEncoder().encode("\n");
/**
 * After the last fault a stream goes on or is given up: `silenceLostMs`, and a little.
 */
const SETTLE_MS = 12_000;
/** Sums of fractions of milliseconds. */
const ROUNDING_MS = 0.001;

/**
 * How a request ended for its client: `edge_dead` is a connection that broke because
 * its edge was killed, a `LostReason` comes from the receiver.
 */
export type Outcome =
  | ("complete" | "error" | "worker_lost" | "rejected" | LostReason)
  | ("client_gone" | "edge_dead");

/** A simulated edge-auth: sends jobs, drives receivers, feeds clients. */
export class Edge extends Process implements FrameTaker {
  readonly requests: Request[] = [];
  reconnectedMs = -Infinity;
  readonly #open = new Map<string, Request>();
  /** Records for the workers, sent at the end of this turn. */
  readonly #control = new Outbox<ControlRecord>(
    (flush) => this.world.scheduler.after(0, () => this.post(flush)),
    (workerId, records) => {
      const worker = this.workers.find(({ id }) => id === workerId);
      assert(worker !== undefined);
      const message = encodeControl(records);
      this.world.publish(this, worker, () => worker.onControl(message));
    },
  );

  constructor(id: string, world: World, readonly workers: readonly Worker[]) {
    super(id, world);
  }

  get openCount(): number {
    return this.isDead ? 0 : this.#open.size;
  }

  startRequest(id: string): void {
    const request = new Request(id, this);
    this.requests.push(request);
    this.post(() => {
      this.#open.set(id, request);
      this.startTicking();
      request.dispatch();
    });
  }

  close(request: Request): void {
    this.#open.delete(request.id);
  }

  /** Everything it held is gone; its clients see their connections break. */
  override kill(): void {
    super.kill();
    for (const request of this.requests) {
      if (request.outcome === null) request.settle("edge_dead");
    }
    this.#open.clear();
  }

  /** Takes the frames of one message from a worker. */
  onFrames(bytes: Uint8Array): void {
    const message = Buffer.from(bytes); // As NATS delivers it.
    const frames = decodeFrames(message);
    assert(frames !== null);
    for (const [requestId, frame] of frames) this.#onFrame(requestId, frame);
    // Nobody may keep a part of a message whose buffer may be used again.
    message.fill(0);
  }

  #onFrame(requestId: string, frame: Frame): void {
    const isTaken = this.#open.get(requestId)?.onFrame(frame) ?? false;
    if (isTaken) return;
    answerStrayFrame(requestId, frame, (workerId, record) => {
      this.world.counts.strayAnswers++;
      this.tellWorker(workerId, record);
    });
  }

  tellWorker(workerId: string, record: ControlRecord): void {
    this.#control.add(workerId, record);
  }

  override onReconnect(): void {
    this.reconnectedMs = this.world.nowMs;
    for (const { receiver } of [...this.#open.values()]) {
      receiver?.onReconnect(this.steadyMs);
    }
  }

  override onTick(): boolean {
    const { hasBeats } = this.world.profile;
    for (const request of [...this.#open.values()]) {
      request.onTick();
      const workerId = request.receiver?.workerId;
      const worker = this.workers.find(({ id }) => id === workerId);
      const silenceMs = worker?.silenceMs ?? 0;
      if (hasBeats && silenceMs >= DISPATCH_LIMITS.workerLostMs) {
        request.loseWorker();
      }
    }
    return this.#open.size > 0;
  }
}

/** A request of a client, with all of its offers, and checks of what it receives. */
export class Request {
  receiver: StreamReceiver | null = null;
  outcome: Outcome | null = null;
  record: OfferRecord | null = null;
  readonly world: World;
  readonly #clientMs: number;
  #offerNumber = 0;
  #deliveredBytes = 0;
  #lineBytes = 0;
  #lines = new LineAssembler(LINE_BYTES_MAX);
  readonly #head = new AnswerHeadReader();
  #hasHead = false;
  #untakenSequence = 0;
  #isClientBusy = false;
  #nakMs = -Infinity;

  constructor(readonly id: string, readonly edge: Edge) {
    this.world = edge.world;
    const { random, profile } = this.world;
    this.#clientMs = random.between(0, profile.clientMsMax);
  }

  /** Sends the job to a worker, dead or alive: a new offer. */
  dispatch(): void {
    assert.equal(this.#deliveredBytes, 0, "second offer after a byte");
    const { edge, id: requestId, world } = this;
    const { limits, profile, random } = world;
    const offerNumber = ++this.#offerNumber;
    const name = `${requestId.slice(-2)}/${offerNumber}`;
    const script = makeScript(name, random, profile);
    // A slow client stops the backend once for each part of the window.
    const stops = Math.ceil(script.bytes.length / limits.ackBytes) + 1;
    const settleByMs = Math.max(world.nowMs, profile.quietMs) +
      script.durationMs + stops * (this.#clientMs + 100) + SETTLE_MS;
    const record = new OfferRecord(name, script, settleByMs);
    const worker = edge.workers[random.whole(0, edge.workers.length - 1)];
    assert(worker !== undefined);
    const isChosen = !random.chance(profile.anyShare);
    world.log(`${name} goes to ${worker.id}`);
    this.record = record;
    this.#nakMs = -Infinity;
    this.receiver = new StreamReceiver({
      requestId,
      offerNumber,
      limits,
      nowMs: edge.steadyMs,
      workerId: isChosen ? worker.id : null,
      control: (workerId, message) => this.#send(workerId, message, record),
    });
    const job = { requestId, offerNumber, edge, record };
    world.publishOnce(edge, worker, () => worker.onJob(job));
  }

  /** A frame of this request. False when it belongs to none of its offers. */
  onFrame(frame: Frame): boolean {
    const { receiver, record } = this;
    if (receiver === null || record === null) return false;
    const event = receiver.onFrame(frame, this.edge.steadyMs);
    if (event.type === "stray") return false;
    assert.equal(this.outcome, null, `${record.name}: after its outcome`);
    this.#onEvent(event, receiver, record);
    return true;
  }

  onTick(): void {
    const { receiver, record } = this;
    if (receiver === null || record === null) return;
    this.#onEvent(receiver.onTick(this.edge.steadyMs), receiver, record);
  }

  leave(): void {
    if (this.outcome !== null) return;
    this.receiver?.cancel("client_gone");
    this.settle("client_gone");
  }

  loseWorker(): void {
    if (this.outcome !== null || this.receiver?.isOver !== false) return;
    this.receiver.cancel("worker_lost");
    this.#retryOr("worker_lost");
  }

  settle(outcome: Outcome): void {
    const { record, world } = this;
    world.log(`${record?.name} is ${outcome}`);
    assert.equal(this.outcome, null, `${this.id}: two outcomes`);
    this.outcome = outcome;
    this.edge.close(this);
    if (record === null) return;
    record.unwantedSinceMs = world.nowMs;
    record.isWorkerKnown = this.receiver?.workerId !== null;
    const isInTime = world.nowMs <= record.settleByMs;
    assert(isInTime, `${record.name}: settled too late`);
  }

  #onEvent(
    event: StreamEvent,
    receiver: StreamReceiver,
    record: OfferRecord,
  ): void {
    const { script, name } = record;
    const { counts, profile: { weather } } = this.world;
    switch (event.type) {
      case "data":
        assert(receiver.isAccepted);
        return this.#deliver(record, event.payload, event.sequence);
      case "rejected":
        counts.rejected++;
        return this.#retryOr("rejected");
      case "ended":
        this.#assertWhole(record, receiver.tokens);
        assert(!script.fails);
        assert.equal(event.end.usage?.completion_tokens, script.tokens);
        return this.settle("complete");
      case "failed":
        this.#assertWhole(record, receiver.tokens);
        assert(script.fails);
        assert.equal(event.failure.error.message, name);
        return event.failure.retryable
          ? this.#retryOr("error")
          : this.settle("error");
      case "lost": {
        // A cut stream is settled with no less than the client got and no more than was
        // produced.
        const { tokens } = receiver;
        const isGot = ({ endByte }: { endByte: number }) =>
          endByte <= this.#deliveredBytes;
        const tokensGot = script.steps.findLast(isGot)?.tokens ?? 0;
        assert(tokens >= tokensGot, `${name}: ${tokens} tokens`);
        assert(tokens <= record.saidTokens, `${name}: ${tokens} tokens`);
        if (weather !== "rough") {
          assert.deepEqual([weather, event.reason], ["gentle", "not_accepted"]);
        }
        return this.#retryOr(event.reason);
      }
      case "violated":
        assert.fail(`${name}: violation of ${event.violation}`);
    }
  }

  #send(
    workerId: string,
    message: ControlRecord,
    record: OfferRecord,
  ): void {
    const { counts, limits, nowMs } = this.world;
    if (message.type === "cancel") record.unwantedSinceMs ??= nowMs;
    else {
      const { type, sequence } = message;
      this.world.log(`edge ${type}s #${sequence} of ${record.name}`);
    }
    if (message.type === "nak") {
      counts.naks++;
      const pauseMs = nowMs - this.#nakMs;
      const isPaced = pauseMs > limits.nakIntervalMs - ROUNDING_MS ||
        this.edge.reconnectedMs === nowMs;
      assert(isPaced, `${record.name}: NAK after ${pauseMs} ms`);
      this.#nakMs = nowMs;
    }
    this.edge.tellWorker(workerId, message);
  }

  #deliver(record: OfferRecord, payload: Uint8Array, sequence: number): void {
    record.assertSaid(this.#deliveredBytes, payload);
    this.#deliveredBytes += payload.length;
    if (record.script.isForwarded) this.#readHead(record, payload);
    else this.#readLines(record, payload);
    const bytes = this.receiver?.undeliveredBytes ?? 0;
    const isBounded = bytes <= this.world.limits.windowBytes;
    assert(isBounded, `${record.name}: edge keeps ${bytes} bytes`);
    this.#untakenSequence = sequence;
    if (this.#clientMs === 0) return this.#delivered();
    if (this.#isClientBusy) return;
    this.#isClientBusy = true;
    this.world.scheduler.after(this.#clientMs, () => {
      this.edge.post(() => {
        this.#isClientBusy = false;
        this.#delivered();
      });
    });
  }

  #readLines(record: OfferRecord, payload: Uint8Array): void {
    const lines = this.#lines.push(payload);
    assert(lines !== null);
    record.assertSaid(this.#lineBytes, lines);
    this.#lineBytes += lines.length;
  }

  /** What follows the head is what stands there in the script. */
  #readHead({ name, script }: OfferRecord, payload: Uint8Array): void {
    if (this.#hasHead) return;
    const read = this.#head.push(payload);
    if (read === null) return;
    assert(read !== "invalid", `${name}: head`);
    assert.equal(read.head.headers["request-id"], name);
    const restBytes = this.#deliveredBytes - script.headBytes;
    assert.equal(read.rest.length, restBytes, `${name}: rest`);
    this.#hasHead = true;
  }

  #delivered(): void {
    this.receiver?.delivered(this.#untakenSequence);
  }

  #assertWhole({ name, hasSaidEnd, script }: OfferRecord, tokens: number) {
    assert(hasSaidEnd, `${name}: ended before its end`);
    assert.equal(this.#deliveredBytes, script.bytes.length, name);
    if (script.isForwarded) {
      assert.equal(this.#hasHead, script.headBytes > 0, name);
    } else assert.equal(this.#lines.push(LINE_END)?.length, 1, name);
    assert.equal(tokens, script.tokens, name);
  }

  #retryOr(outcome: Outcome): void {
    if (this.#deliveredBytes > 0 || this.#offerNumber >= OFFERS_MAX) {
      return this.settle(outcome);
    }
    this.world.counts.retries++;
    this.dispatch();
  }
}

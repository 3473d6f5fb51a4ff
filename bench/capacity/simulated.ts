/**
 * Edges and workers on a simulated bus with a virtual clock. The edges are real
 * dispatchers; the workers take and reject jobs and give slots by the rules of real
 * ones, but answer after a time that is drawn.
 */
import { decodeJob, type WorkerBeat } from "@gateway/shared/bus/job";
import { NoRespondersError } from "@gateway/shared/bus/link";
import {
  type ControlRecord,
  decodeControl,
} from "@gateway/shared/bus/stream/control";
import {
  encodeFrame,
  encodeFrames,
  encodeJson,
  FrameType,
} from "@gateway/shared/bus/stream/frame";
import { encodeRejectFrame } from "@gateway/shared/bus/stream/payloads";
import {
  lastToken,
  parseEdgeStream,
  subjects,
} from "@gateway/shared/bus/subjects";
import {
  decodeEdgeBeat,
  decodeReturn,
  encodeTurn,
} from "@gateway/shared/bus/waiting";
import { DISPATCH_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import type { QueueTerms } from "@gateway/shared/models/queue";
import { silentLog } from "@gateway/shared/process/log";
import { encodeUtf8 } from "@gateway/shared/text/utf8";
import { refusalOf } from "@gateway/shared/worker/refusal";
import { Turns } from "@gateway/shared/worker/turns";
import { Dispatcher } from "../../services/edge-auth/dispatch/dispatcher.ts";
import {
  CONTROL_WAIT_MS,
  type EdgeLink,
} from "../../services/edge-auth/dispatch/edge_bus.ts";
import type {
  AnswerSink,
  RunJob,
  RunOutcome,
} from "../../services/edge-auth/dispatch/outcome.ts";
import { WholeBody } from "../../services/edge-auth/dispatch/request_body.ts";
import type { Timeline } from "./timeline.ts";

const MODEL = "m";
/** A message takes this long. */
const LINK_MS = 0.5;
const TIMEOUT_MS = 3_600_000;
/** A worker says by its next tick that it runs a job. */
const ACCEPT_MS_MAX = 50;
/** What a worker tells when its servers are at limits. */
const SATURATED_MS = 100;
/** How often a worker looks whether slots are unused. */
const WORKER_TICK_MS = 50;
const SINK: AnswerSink = {
  hasStarted: false,
  onPayload: () => {},
  onEnd: () => {},
  onError: () => {},
  onAbandoned: () => {},
  onRestart: () => {},
  onTick: () => {},
};

/** What a simulation counts on its bus: each message once for each receiver. */
export interface BusCounts {
  edgeBeats: number;
  workerBeats: number;
  turns: number;
  returns: number;
}

/** Where simulated edges and workers live. */
export interface SimulatedBus {
  readonly timeline: Timeline;
  readonly random: () => number;
  readonly edges: readonly SimulatedEdge[];
  readonly workers: ReadonlyMap<string, SimulatedWorker>;
  /** How long an answer takes on average. */
  readonly answerMs: number;
  /** How requests wait. Default: as for every model. */
  readonly queue?: QueueTerms;
  readonly counts: BusCounts;
  /** Whether the model servers are at limits. */
  isAtLimit(): boolean;
  /** A worker has taken a request. */
  onTaken(requestId: string): void;
  /** A worker has sent a request back. */
  onSentBack(requestId: string): void;
  /** A worker has answered a request. */
  onAnswered(requestId: string): void;
}

/** What a request of a simulation is. */
export type SimulatedRequest = Omit<RunJob, "kind" | "model" | "body">;

/** Nothing was sent yet. */
export const noCounts = (): BusCounts => ({
  edgeBeats: 0,
  workerBeats: 0,
  turns: 0,
  returns: 0,
});

/** A real dispatcher, and its link to the simulated bus. */
export class SimulatedEdge implements EdgeLink {
  readonly isConnected = true;
  readonly flowingSinceMs = 0;
  readonly id: string;
  readonly dispatcher: Dispatcher;
  readonly #bus: SimulatedBus;

  constructor(id: string, bus: SimulatedBus) {
    this.id = id;
    this.#bus = bus;
    const { timeline, random, queue } = bus;
    this.dispatcher = new Dispatcher({
      bus: this,
      edgeId: id,
      now: () => timeline.nowMs,
      random,
      scheduleSoon: (flush) => timeline.after(CONTROL_WAIT_MS, flush),
      log: silentLog,
      requestTimeoutMs: TIMEOUT_MS,
      ...queue && { queueOf: () => queue },
    });
  }

  get receivedAtMs(): number {
    return this.#bus.timeline.nowMs;
  }

  /** Ticks and beats from now on. */
  start(): void {
    const { timeline, random } = this.#bus;
    timeline.every(STREAM_LIMITS.tickMs, random(), () => {
      this.dispatcher.tick();
    });
    timeline.every(DISPATCH_LIMITS.edgeBeatMs, random(), () => {
      this.dispatcher.beats.beat();
    });
  }

  /** A client asks. */
  ask(
    request: SimulatedRequest,
    onEnded: (outcome: RunOutcome) => void,
  ): void {
    const bytes = encodeUtf8(JSON.stringify({ model: MODEL, stream: true }));
    const body = new WholeBody(bytes);
    const job = { ...request, kind: "chat", model: MODEL, body } as const;
    this.dispatcher.start(job, SINK, onEnded);
  }

  publish(
    subject: string,
    payload: Uint8Array,
    { reply }: { reply?: string } = {},
  ): void {
    const { timeline, workers, counts } = this.#bus;
    const worker = workers.get(lastToken(subject));
    if (reply !== undefined) {
      // A body may be released as soon as it is sent.
      const data = payload.slice();
      timeline.after(LINK_MS, () => worker?.onJob(this, reply, data));
    } else if (subject === subjects.edgeBeat(this.id)) {
      counts.edgeBeats += workers.size;
      const waiting = decodeEdgeBeat(payload);
      timeline.after(LINK_MS, () => {
        for (const { turns } of workers.values()) {
          turns.onBeat(this.id, waiting);
        }
      });
    } else if (worker && subject === subjects.turnReturns("chat", worker.id)) {
      counts.returns += 1;
      const edgeId = decodeReturn(payload) ?? "";
      timeline.after(LINK_MS, () => worker.turns.onReturn(edgeId));
    } else if (worker && subject === subjects.control("chat", worker.id)) {
      const records = decodeControl(payload);
      timeline.after(LINK_MS, () => worker.onControl(this, records));
    }
  }

  request(subject: string): Promise<never> {
    return Promise.reject(new NoRespondersError(subject));
  }
}

/** A worker that takes as long for an answer as is drawn. */
export class SimulatedWorker {
  readonly id: string;
  readonly slots: number;
  readonly turns: Turns;
  inFlight = 0;
  readonly #bus: SimulatedBus;

  constructor(id: string, slots: number, bus: SimulatedBus) {
    this.id = id;
    this.slots = slots;
    this.#bus = bus;
    const { timeline, counts } = bus;
    this.turns = new Turns({
      now: () => timeline.nowMs,
      mayRun: () => !bus.isAtLimit(),
      tell: (edgeId, news) => {
        counts.turns += 1;
        const data = encodeTurn({ worker: id, ...news });
        const edge = bus.edges.find((each) => each.id === edgeId);
        timeline.after(LINK_MS, () => edge?.dispatcher.onTurnMessage(data));
      },
    });
  }

  /** Ticks and beats from now on. */
  start(): void {
    const { timeline, random } = this.#bus;
    timeline.every(DISPATCH_LIMITS.workerBeatMs, random(), () => this.#beat());
    timeline.every(WORKER_TICK_MS, random(), () => {
      this.turns.onTick(this.slots - this.inFlight);
    });
  }

  #beat(): void {
    const { slots, inFlight, turns } = this;
    const { timeline, edges, counts } = this.#bus;
    counts.workerBeats += edges.length;
    const beat: WorkerBeat = {
      version: 2,
      family: "chat",
      slots,
      inFlight: inFlight + turns.kept,
      draining: false,
      models: [MODEL],
    };
    timeline.after(LINK_MS, () => {
      for (const { dispatcher } of edges) {
        const isFree = dispatcher.workers.onBeat(this.id, beat);
        if (isFree) dispatcher.queue.offer();
      }
    });
  }

  /** A job has come. */
  onJob(edge: SimulatedEdge, reply: string, data: Uint8Array): void {
    const message = decodeJob(data);
    const requestId = parseEdgeStream(reply)?.requestId;
    if (message === null || "mismatchedOffer" in message || !requestId) {
      throw new Error("A job cannot be read");
    }
    const bus = this.#bus;
    const refusal = refusalOf(message, {
      isWaking: false,
      isDraining: false,
      inFlight: this.inFlight + this.turns.keptBesides(edge.id),
      slots: this.slots,
      runners: {
        has: () => true,
        saturatedMs: () => bus.isAtLimit() ? SATURATED_MS : 0,
      },
    });
    const offerNumber = message.attempt;
    if (refusal === null) {
      this.turns.onJob(edge.id, message.queuedTokens);
      return this.#answer(edge, requestId, offerNumber);
    }
    this.turns.onRejectedJob(edge.id, refusal.reason);
    bus.onSentBack(requestId);
    const payload = { worker: this.id, ...refusal };
    this.#send(edge, requestId, encodeRejectFrame(offerNumber, payload));
  }

  /** An edge acknowledges ends of answers. */
  onControl(edge: SimulatedEdge, records: readonly ControlRecord[]): void {
    for (const { type, requestId } of records) {
      if (type === "ack") this.turns.onEndTaken(edge.id, requestId);
    }
  }

  #answer(edge: SimulatedEdge, requestId: string, offerNumber: number): void {
    const { timeline, random, answerMs } = this.#bus;
    this.#bus.onTaken(requestId);
    this.inFlight += 1;
    const tellMs = ACCEPT_MS_MAX * random();
    const tookMs = tellMs + exponential(answerMs, random);
    const endsAtMs = timeline.nowMs + tookMs;
    const worker = this.id;
    const send = (type: FrameType, sequence: number, payload: object) => {
      const header = { type, sequence, tokens: 0, offerNumber };
      const frame = encodeFrame(header, encodeJson(payload));
      this.#send(edge, requestId, frame);
    };
    const stillRuns = () => {
      if (timeline.nowMs >= endsAtMs) return;
      send(FrameType.BEAT, 0, { worker });
      timeline.after(STREAM_LIMITS.idleBeatMs, stillRuns);
    };
    timeline.after(tellMs, stillRuns);
    timeline.after(tookMs, () => {
      this.#bus.onAnswered(requestId);
      this.inFlight -= 1;
      this.turns.onSlotFree(edge.id, MODEL, requestId);
      send(FrameType.END, 1, { worker, usage: null });
    });
  }

  #send(edge: SimulatedEdge, requestId: string, frame: Uint8Array): void {
    this.#bus.timeline.after(LINK_MS, () => {
      for (const message of encodeFrames([[requestId, frame]])) {
        edge.dispatcher.onFrameMessage(message);
      }
    });
  }
}

/** A time until something that happens every `meanMs` on average. */
export const exponential = (meanMs: number, random: () => number): number =>
  -meanMs * Math.log(1 - random());

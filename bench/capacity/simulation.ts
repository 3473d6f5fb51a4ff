/**
 * Edges and workers on a simulated bus with a virtual clock. The edges are real
 * dispatchers; the workers take and reject jobs by the rules of real ones, but answer
 * after a time that is drawn.
 */
import { decodeJob, type WorkerBeat } from "@gateway/shared/bus/job";
import { NoRespondersError } from "@gateway/shared/bus/link";
import {
  encodeFrame,
  encodeFrames,
  encodeJson,
  FrameType,
} from "@gateway/shared/bus/stream/frame";
import { encodeRejectFrame } from "@gateway/shared/bus/stream/payloads";
import { lastToken, parseEdgeStream } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import { silentLog } from "@gateway/shared/process/log";
import { encodeUtf8 } from "@gateway/shared/text/utf8";
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
import { refusalOf } from "@gateway/shared/worker/refusal";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import { cpuSeconds } from "../processes.ts";
import { Timeline } from "./timeline.ts";

/** What is simulated. */
export interface Scenario {
  readonly edges: number;
  readonly workers: number;
  /** Requests that clients want to have running, on average. */
  readonly streams: number;
  /** The same as a share of all slots. */
  readonly load: number;
  /** How long an answer takes on average. */
  readonly answerMs: number;
  /** The model server runs this many at once, as a share of all slots. */
  readonly serverLimit?: number;
}

/** What came of it. */
export interface Result {
  /** Requests that a worker took, or that were refused. */
  readonly requests: number;
  /** Those for which no worker had a slot in time. */
  readonly refused: number;
  /** From the request until a worker took it, sorted. */
  readonly takenMs: readonly number[];
  /** Jobs that a worker sent back. */
  readonly sentBack: number;
  /** Share of its slots that the busiest worker used, less that of all, at most. */
  readonly imbalance: number;
  /** CPU time of one edge, and of what is simulated around it, as a share of a core. */
  readonly edgeShare: number;
}

const SEED = 37;
const KEYS = 100;
const MODEL = "m";
/** A message takes this long. */
const LINK_MS = 0.5;
const TIMEOUT_MS = 600_000;
/** A worker says by its next tick that it runs a job. */
const ACCEPT_MS_MAX = 50;
/** The requests that run at the start come within this time. */
const FILL_MS = 1_000;
/** What happens before is not counted. */
const SETTLED_MS = 3_000;
/** In which the last requests that count find a worker, or do not. */
const DECIDED_MS = DISPATCH_LIMITS.queueWaitMs + STREAM_LIMITS.tickMs;
/** Enough requests for a share of a thousandth, in bounded time. */
const REQUESTS_MIN = 2_000;
const WINDOW_MS = { min: 5_000, max: 600_000 };
/** What a worker tells when its servers are at limits. */
const SATURATED_MS = 100;
const SINK: AnswerSink = {
  hasStarted: false,
  onPayload: () => {},
  onEnd: () => {},
  onError: () => {},
  onAbandoned: () => {},
  onRestart: () => {},
  onTick: () => {},
};

/** Runs a scenario; the same one always comes to the same. */
export function simulate(scenario: Scenario): Promise<Result> {
  return new Simulation(scenario).run();
}

class Simulation {
  readonly scenario: Scenario;
  readonly timeline = new Timeline();
  readonly random = seededRandom(SEED);
  readonly edges: readonly Edge[];
  readonly workers = new Map<string, SimulatedWorker>();
  /** Requests that the model servers run. */
  running = 0;
  /** Requests that come until then count. */
  readonly #windowEndMs: number;
  #requests = 0;
  /** When the requests came that no worker has taken yet. */
  readonly #askedAtMs = new Map<string, number>();
  #refused = 0;
  #sentBack = 0;
  #imbalance = 0;
  readonly #takenMs: number[] = [];

  constructor(scenario: Scenario) {
    this.scenario = scenario;
    const { edges, workers, streams, load, answerMs } = scenario;
    const slots = Math.max(1, Math.round(streams / load / workers));
    for (let n = 0; n < workers; n += 1) {
      const worker = new SimulatedWorker(`w${n}`, slots, this);
      this.workers.set(worker.id, worker);
    }
    this.edges = Array.from(
      { length: edges },
      (_, n) => new Edge(`e${n}`, this),
    );
    const wantedMs = REQUESTS_MIN / (streams / answerMs);
    const { min, max } = WINDOW_MS;
    this.#windowEndMs = SETTLED_MS + Math.min(max, Math.max(min, wantedMs));
  }

  /** How many requests the model servers run at once. */
  get serverSlots(): number {
    const { streams, load, serverLimit = Infinity } = this.scenario;
    return streams / load * serverLimit;
  }

  async run(): Promise<Result> {
    const { edges, streams, answerMs } = this.scenario;
    const { timeline, random } = this;
    for (const edge of this.edges) {
      timeline.every(STREAM_LIMITS.tickMs, random(), () => edge.tick());
    }
    for (const worker of this.workers.values()) {
      const { workerBeatMs } = DISPATCH_LIMITS;
      timeline.every(workerBeatMs, random(), () => worker.beat());
    }
    for (let n = 0; n < streams; n += 1) {
      timeline.after(FILL_MS * random(), () => this.#ask());
    }
    const gapMs = answerMs / streams;
    const arrive = () => {
      this.#ask();
      timeline.after(exponential(gapMs, random), arrive);
    };
    timeline.after(DISPATCH_LIMITS.workerBeatMs, arrive);
    timeline.after(SETTLED_MS, () => {
      timeline.every(DISPATCH_LIMITS.workerBeatMs, 0, () => this.#look());
    });
    const before = cpuSeconds([Deno.pid]);
    const endMs = this.#windowEndMs + DECIDED_MS;
    await timeline.runTo(endMs);
    const cpuMs = 1_000 * (cpuSeconds([Deno.pid]) - before);
    return {
      requests: this.#takenMs.length + this.#refused,
      refused: this.#refused,
      takenMs: this.#takenMs.sort((a, b) => a - b),
      sentBack: this.#sentBack,
      imbalance: this.#imbalance,
      edgeShare: cpuMs / endMs / edges,
    };
  }

  /** A worker has taken a request. */
  onTaken(requestId: string): void {
    this.running += 1;
    const askedAtMs = this.#askedAtMs.get(requestId);
    if (askedAtMs === undefined) return;
    this.#askedAtMs.delete(requestId);
    this.#takenMs.push(this.timeline.nowMs - askedAtMs);
  }

  /** A worker has sent a request back. */
  onSentBack(requestId: string): void {
    if (this.#askedAtMs.has(requestId)) this.#sentBack += 1;
  }

  #ask(): void {
    const edge = this.edges[Math.floor(this.random() * this.edges.length)];
    const { nowMs } = this.timeline;
    this.#requests += 1;
    const requestId = this.#requests.toString(16).padStart(32, "0");
    const isCounted = nowMs >= SETTLED_MS && nowMs < this.#windowEndMs;
    if (isCounted) this.#askedAtMs.set(requestId, nowMs);
    const keyId = `key_${this.#requests % KEYS}`;
    edge?.ask({ requestId, keyId }, ({ kind }) => {
      const wasWaiting = this.#askedAtMs.delete(requestId);
      if (wasWaiting && kind === "failed") this.#refused += 1;
    });
  }

  #look(): void {
    const shares = this.workers.values().map((worker) =>
      worker.inFlight / worker.slots
    ).toArray();
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length;
    const most = shares.reduce((a, b) => Math.max(a, b), 0);
    this.#imbalance = Math.max(this.#imbalance, most - mean);
  }
}

/** A real dispatcher, and its link to the simulated bus. */
class Edge implements EdgeLink {
  readonly isConnected = true;
  readonly flowingSinceMs = 0;
  readonly dispatcher: Dispatcher;
  readonly #simulation: Simulation;

  constructor(edgeId: string, simulation: Simulation) {
    this.#simulation = simulation;
    const { timeline, random } = simulation;
    this.dispatcher = new Dispatcher({
      bus: this,
      edgeId,
      now: () => timeline.nowMs,
      random,
      scheduleSoon: (flush) => timeline.after(CONTROL_WAIT_MS, flush),
      log: silentLog,
      requestTimeoutMs: TIMEOUT_MS,
    });
  }

  get receivedAtMs(): number {
    return this.#simulation.timeline.nowMs;
  }

  tick(): void {
    this.dispatcher.tick();
  }

  ask(
    ids: Pick<RunJob, "requestId" | "keyId">,
    onEnded: (outcome: RunOutcome) => void,
  ): void {
    const request = { model: MODEL, stream: true };
    const body = new WholeBody(encodeUtf8(JSON.stringify(request)));
    const job = { ...ids, kind: "chat", model: MODEL, body } as const;
    this.dispatcher.start(job, SINK, onEnded);
  }

  publish(
    subject: string,
    payload: Uint8Array,
    { reply }: { reply?: string } = {},
  ): void {
    // Others are acknowledgements, which change nothing here.
    if (reply === undefined) return;
    const { timeline, workers } = this.#simulation;
    const worker = workers.get(lastToken(subject));
    // A body may be released as soon as it is sent.
    const data = payload.slice();
    timeline.after(LINK_MS, () => worker?.onJob(this, reply, data));
  }

  request(subject: string): Promise<never> {
    return Promise.reject(new NoRespondersError(subject));
  }
}

/** A worker that takes as long for an answer as is drawn. */
class SimulatedWorker {
  readonly id: string;
  readonly slots: number;
  inFlight = 0;
  readonly #simulation: Simulation;

  constructor(id: string, slots: number, simulation: Simulation) {
    this.id = id;
    this.slots = slots;
    this.#simulation = simulation;
  }

  beat(): void {
    const { slots, inFlight } = this;
    const { timeline, edges } = this.#simulation;
    const beat: WorkerBeat = {
      version: 2,
      family: "chat",
      slots,
      inFlight,
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

  onJob(edge: Edge, reply: string, data: Uint8Array): void {
    const message = decodeJob(data);
    const requestId = parseEdgeStream(reply)?.requestId;
    if (message === null || "mismatchedOffer" in message || !requestId) {
      throw new Error("A job cannot be read");
    }
    const simulation = this.#simulation;
    const isAtLimit = simulation.running >= simulation.serverSlots;
    const refusal = refusalOf(message, {
      isWaking: false,
      isDraining: false,
      inFlight: this.inFlight,
      slots: this.slots,
      runners: {
        has: () => true,
        saturatedMs: () => isAtLimit ? SATURATED_MS : 0,
      },
    });
    const offerNumber = message.attempt;
    if (refusal === null) return this.#answer(edge, requestId, offerNumber);
    simulation.onSentBack(requestId);
    const payload = { worker: this.id, ...refusal };
    this.#send(edge, requestId, encodeRejectFrame(offerNumber, payload));
  }

  #answer(edge: Edge, requestId: string, offerNumber: number): void {
    const { timeline, random, scenario } = this.#simulation;
    this.#simulation.onTaken(requestId);
    this.inFlight += 1;
    const tellMs = ACCEPT_MS_MAX * random();
    const tookMs = tellMs + exponential(scenario.answerMs, random);
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
      this.#simulation.running -= 1;
      this.inFlight -= 1;
      send(FrameType.END, 1, { worker, usage: null });
    });
  }

  #send(edge: Edge, requestId: string, frame: Uint8Array): void {
    this.#simulation.timeline.after(LINK_MS, () => {
      for (const message of encodeFrames([[requestId, frame]])) {
        edge.dispatcher.onFrameMessage(message);
      }
    });
  }
}

/** A time until something that happens every `meanMs` on average. */
const exponential = (meanMs: number, random: () => number): number =>
  -meanMs * Math.log(1 - random());

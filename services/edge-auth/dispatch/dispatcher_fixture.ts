/** A dispatcher whose bus, clock and workers are controlled by the test. */
import assert from "node:assert/strict";
import { decodeControl } from "@gateway/shared/bus/stream/control";
import {
  encodeFrame,
  encodeFrames,
  encodeJson,
  FrameType,
} from "@gateway/shared/bus/stream/frame";
import {
  encodeErr,
  type RejectReason,
} from "@gateway/shared/bus/stream/payloads";
import { decodeJob, encodeWorkerBeat } from "@gateway/shared/bus/job";
import { type BusMessage, NoRespondersError } from "@gateway/shared/bus/link";
import { lastToken, subjects } from "@gateway/shared/bus/subjects";
import {
  decodeEdgeBeat,
  decodeReturn,
  encodeTurn,
} from "@gateway/shared/bus/waiting";
import { STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { chatRequest } from "../../../tests/support/chat_request.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { usageOf } from "../../../tests/support/model_servers/scripted_model_server.ts";
import { Dispatcher } from "./dispatcher.ts";
import type { EdgeLink } from "./edge_bus.ts";
import type { AnswerSink, RunJob, RunOutcome, StartedRun } from "./outcome.ts";
import { WholeBody } from "./request_body.ts";

const EDGE = "e1";
/** What {@link Stage.end} states. */
export const USAGE = usageOf(2);
/** The backend that {@link Stage.end} and {@link Stage.err} name. */
export const BACKEND = "vllm-1";
/** How long a run may take. */
export const TIMEOUT_MS = 60_000;
const idOf = (number: number) => number.toString(16).padStart(32, "0");
const numberOf = (requestId = "") => Number.parseInt(requestId, 16);

/**
 * The request of a frame, and its head; by default the last offer of the first
 * request.
 */
export interface Header {
  readonly request?: number;
  readonly offerNumber?: number;
  readonly sequence?: number;
  readonly tokens?: number;
}

/** The part of a stage that its bus writes to. */
type StageOfBus = Pick<
  Stage,
  "beats" | "clock" | "events" | "offers" | "deadlinesMs"
>;

/** A bus that only writes down what it is sent, and answers what the test says. */
class ScriptedBus implements EdgeLink {
  readonly isConnected = true;
  flowingSinceMs: number | null = 0;
  /** If set, the bus has delivered nothing since. */
  silentSinceMs: number | null = null;
  /** Workers that answer requests. */
  readonly answers = new Set<string>();
  /** Workers that are connected but do not answer. */
  readonly listens = new Set<string>();
  /** Messages with control records so far. */
  controlMessages = 0;
  readonly #stage: StageOfBus;

  constructor(stage: StageOfBus) {
    this.#stage = stage;
  }

  get receivedAtMs(): number {
    return this.silentSinceMs ?? this.#stage.clock.ms;
  }

  publish(
    subject: string,
    payload: Uint8Array,
    publishing?: { reply?: string },
  ): void {
    const reply = publishing?.reply;
    if (reply !== undefined) this.#onJob(subject, reply, payload);
    else if (subject === subjects.edgeBeat(EDGE)) this.#onBeat(payload);
    else if (subject.includes(".turns.")) {
      const edge = decodeReturn(payload) ?? assert.fail("malformed");
      this.#note(`return ${lastToken(subject)} ${edge}`);
    } else this.#onControl(subject, payload);
  }

  request(subject: string, payload: Uint8Array): Promise<BusMessage> {
    const [kind, worker = ""] = subject.split(".").slice(3);
    this.#note(`${kind === "ctl" ? "probe" : "piece"} ${worker}`);
    if (this.answers.has(worker)) {
      return Promise.resolve({ subject, data: payload });
    }
    return this.listens.has(worker)
      ? new Promise(() => {})
      : Promise.reject(new NoRespondersError(subject));
  }

  #onJob(subject: string, reply: string, payload: Uint8Array): void {
    const [requestId, offerNumber] = reply.split(".").slice(-2);
    const request = numberOf(requestId);
    const job = decodeJob(payload);
    assert(job !== null && "deadlineMs" in job);
    this.#stage.deadlinesMs.set(request, job.deadlineMs);
    this.#stage.offers.set(request, Number(offerNumber));
    const worker = subject === subjects.anyWorker("chat")
      ? "anybody"
      : lastToken(subject);
    this.#note(`offer ${worker} ${request}.${offerNumber}`);
  }

  #onBeat(payload: Uint8Array): void {
    const lanes = [...decodeEdgeBeat(payload)].map(([lane, { requests }]) =>
      `${lane} ${requests}`
    );
    this.#stage.beats.push(lanes.join(", "));
  }

  #onControl(subject: string, payload: Uint8Array): void {
    this.controlMessages += 1;
    for (const record of decodeControl(payload)) {
      const { type, requestId, offerNumber } = record;
      const rest = record.type === "cancel" ? record.reason : record.sequence;
      const to = lastToken(subject);
      this.#note(`${type} ${to} ${numberOf(requestId)}.${offerNumber} ${rest}`);
    }
  }

  #note(event: string): void {
    this.#stage.events.push(event);
  }
}

/** A client that writes down what it gets. */
class ScriptedSink implements AnswerSink {
  hasStarted = false;
  readonly #note: (what: string) => void;

  constructor(note: (what: string) => void) {
    this.#note = note;
  }

  onPayload(payload: Uint8Array): void {
    this.hasStarted = true;
    this.#note(`payload ${new TextDecoder().decode(payload)}`);
  }

  onEnd(): void {
    this.#note("end");
  }

  onError(error: ApiError): void {
    this.#note(`error ${error.code}`);
  }

  onAbandoned(): void {
    this.#note("abandoned");
  }

  onRestart(): void {
    this.#note("restart");
  }

  onTick(): void {}
}

/** A dispatcher, and everything around it. */
export class Stage {
  readonly clock = { ms: 0 };
  /** What the dispatcher did, in order; see {@link take}. */
  readonly events: string[] = [];
  /** What waited as its beats have told. */
  readonly beats: string[] = [];
  /** The number of the last offer of each request. */
  readonly offers = new Map<number, number>();
  /** The deadline that the last job of each request states. */
  readonly deadlinesMs = new Map<number, number>();
  readonly bus = new ScriptedBus(this);
  readonly log = createRecordingLog();
  /** By request, once it has ended. */
  readonly outcomes = new Map<number, RunOutcome>();
  /** Models that an operator has disabled. */
  readonly disabled = new Set<string>();
  readonly dispatcher: Dispatcher;
  readonly #soon: (() => void)[] = [];

  constructor() {
    this.dispatcher = new Dispatcher({
      bus: this.bus,
      edgeId: EDGE,
      now: () => this.clock.ms,
      random: () => 0,
      scheduleSoon: (flush) => void this.#soon.push(flush),
      log: this.log,
      requestTimeoutMs: TIMEOUT_MS,
      refusalOf: (model) =>
        this.disabled.has(model)
          ? new ApiError("model_not_found", "It is disabled.")
          : null,
    });
  }

  /** A stage with one request, which runs at the first of these workers. */
  static async running(...workers: string[]): Promise<Stage> {
    const stage = new Stage();
    for (const worker of workers) stage.beat(worker);
    stage.ask();
    stage.accept(workers[0]);
    await stage.take();
    return stage;
  }

  /** The events since the last call, control records last. */
  async take(): Promise<string[]> {
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    for (const flush of this.#soon.splice(0)) flush();
    return this.events.splice(0);
  }

  /** A beat with this many free slots. */
  beat(worker: string, free = 1, state: "serving" | "draining" = "serving") {
    this.dispatcher.onBeatMessage(
      subjects.workerBeat(worker),
      encodeWorkerBeat({
        family: "chat",
        models: ["m"],
        draining: state === "draining",
        slots: Math.max(1, free),
        inFlight: free === 0 ? 1 : 0,
      }),
    );
  }

  /** A worker keeps a slot for this edge, or passes one to another. */
  turn(slot: "kept" | "passed", worker = "w1"): void {
    const turn = encodeTurn({ worker, model: "m", slot });
    this.dispatcher.onTurnMessage(turn);
  }

  /** Starts the run of a request with this text. */
  ask(
    request = 1,
    { content = "x", endsByMs }: { content?: string; endsByMs?: number } = {},
  ): StartedRun {
    const messages = [{ role: "user" as const, content }];
    const body = WholeBody.encode({ ...chatRequest({ messages }), model: "m" });
    const job: RunJob = {
      requestId: idOf(request),
      keyId: `key_${request}`,
      account: `own_${request}`,
      kind: "chat",
      model: "m",
      body,
      endsByMs,
    };
    const sink = new ScriptedSink((what) =>
      void this.events.push(`${what} ${request}`)
    );
    return this.dispatcher.start(job, sink, (outcome) => {
      this.outcomes.set(request, outcome);
      this.events.push(`over ${outcome.kind} ${request}`);
    });
  }

  /** The worker accepts the job. */
  accept(worker = "w1", header: Header = {}): void {
    this.#frame("ACCEPT", encodeJson({ worker }), header);
  }

  /** A worker sends part of the answer. */
  data(text: string, sequence: number, header: Header = {}): void {
    const payload = new TextEncoder().encode(text);
    this.#frame("DATA", payload, { ...header, sequence });
  }

  /** A worker ends the answer. */
  end(sequence: number, worker = "w1", header: Header = {}): void {
    const payload = encodeJson({ worker, usage: USAGE, backend: BACKEND });
    this.#frame("END", payload, { ...header, sequence, tokens: 2 });
  }

  /** A worker says that the request has failed, by its own or the backend's fault. */
  err(
    sequence: number,
    fault: "of the worker" | "of the backend",
    header: Header = {},
  ): void {
    const payload = encodeErr("w1", {
      error: new ApiError("upstream_error", "It failed."),
      retryable: fault === "of the worker",
      usage: null,
      backend: BACKEND,
    });
    this.#frame("ERR", payload, { ...header, sequence });
  }

  /** A worker rejects the job. */
  reject(
    reason: RejectReason,
    worker = "w1",
    { retryAfterMs = null, ...header }: Header & {
      retryAfterMs?: number | null;
    } = {},
  ): void {
    const payload = encodeJson({ worker, reason, retryAfterMs });
    this.#frame("REJECT", payload, header);
  }

  /** The bus says that nobody received the job. */
  noResponders(header: Header = {}): void {
    const id = idOf(header.request ?? 1);
    const subject = subjects.edgeStream(EDGE, id, this.#offerNumberOf(header));
    this.dispatcher.onNoResponders(subject);
  }

  /**
   * In small steps, because one large step would look like a stall of this process.
   * Probes are answered in between.
   */
  async tickTo(ms: number, onTick: () => void = () => {}): Promise<void> {
    const { clock } = this;
    while (clock.ms < ms) {
      clock.ms = Math.min(ms, clock.ms + STREAM_LIMITS.tickMs / 2);
      onTick();
      this.dispatcher.tick();
      for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    }
  }

  #offerNumberOf({ request = 1, offerNumber }: Header): number {
    return offerNumber ?? this.offers.get(request) ?? 0;
  }

  #frame(
    type: keyof typeof FrameType,
    payload: Uint8Array,
    header: Header,
  ): void {
    const { request = 1, sequence = 0, tokens = 0 } = header;
    const bytes = encodeFrame({
      type: FrameType[type],
      sequence,
      tokens,
      offerNumber: this.#offerNumberOf(header),
    }, payload);
    const [message = assert.fail()] = encodeFrames([[idOf(request), bytes]]);
    this.dispatcher.onFrameMessage(message);
  }
}

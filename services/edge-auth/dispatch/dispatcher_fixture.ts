/** A dispatcher whose bus, clock and workers are controlled by the test. */
import assert from "node:assert/strict";
import { decodeControl } from "@gateway/shared/bus/control";
import {
  encodeErr,
  encodeFrame,
  encodeFrames,
  encodeJson,
  FrameType,
  type RejectReason,
} from "@gateway/shared/bus/frame";
import { encodeWorkerBeat } from "@gateway/shared/bus/job";
import { NoRespondersError } from "@gateway/shared/bus/link";
import { lastToken, subjects } from "@gateway/shared/bus/subjects";
import { STREAM_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { chatRequest } from "../../../tests/support/chat_request.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { usageOf } from "../../../tests/support/scripted_model_server.ts";
import { Dispatcher } from "./dispatcher.ts";
import type { AnswerSink, RunOutcome, StartedRun } from "./outcome.ts";
import { WholeBody } from "./request_body.ts";

const EDGE = "e1";
export const USAGE = usageOf(2);
export const TIMEOUT_MS = 60_000;
const idOf = (number: number) => number.toString(16).padStart(32, "0");
const numberOf = (requestId = "") => Number.parseInt(requestId, 16);

type Header = {
  [Field in "request" | "attempt" | "sequence" | "tokens"]?: number | undefined;
};

/** `events` lists what the dispatcher did, in order; see `take`. */
export function setup() {
  const clock = { ms: 0 };
  const bus = {
    flowingSinceMs: 0 as number | null,
    /** If set, the bus has delivered nothing since. */
    silentSinceMs: null as number | null,
    /**
     * Workers that answer requests, and workers that are connected but do not answer.
     */
    answers: new Set<string>(),
    listens: new Set<string>(),
  };
  const events: string[] = [];
  let messages = 0;
  const soon: (() => void)[] = [];
  const log = createRecordingLog();
  const outcomes = new Map<number, RunOutcome>();
  const attempts = new Map<number, number>();

  const onJob = (subject: string, reply: string) => {
    const [requestId, attempt] = reply.split(".").slice(-2);
    const request = numberOf(requestId);
    attempts.set(request, Number(attempt));
    const worker = subject === subjects.anyWorker("chat")
      ? "anybody"
      : lastToken(subject);
    events.push(`offer ${worker} ${request}.${attempt}`);
  };
  const onControl = (subject: string, payload: Uint8Array) => {
    messages += 1;
    for (const record of decodeControl(payload)) {
      const { type, requestId, attempt } = record;
      const rest = record.type === "cancel" ? record.reason : record.sequence;
      const to = lastToken(subject);
      events.push(`${type} ${to} ${numberOf(requestId)}.${attempt} ${rest}`);
    }
  };
  const dispatcher = new Dispatcher({
    bus: {
      isConnected: true,
      get flowingSinceMs() {
        return bus.flowingSinceMs;
      },
      get receivedAtMs() {
        return bus.silentSinceMs ?? clock.ms;
      },
      publish: (subject, payload, publishing) => {
        if (publishing?.reply === undefined) onControl(subject, payload);
        else onJob(subject, publishing.reply);
      },
      request: (subject, payload) => {
        const [kind, worker = ""] = subject.split(".").slice(3);
        events.push(`${kind === "ctl" ? "probe" : "piece"} ${worker}`);
        if (bus.answers.has(worker)) {
          return Promise.resolve({ subject, data: payload });
        }
        return bus.listens.has(worker)
          ? new Promise(() => {})
          : Promise.reject(new NoRespondersError(subject));
      },
    },
    edgeId: EDGE,
    now: () => clock.ms,
    random: () => 0,
    scheduleSoon: (flush) => void soon.push(flush),
    log,
    requestTimeoutMs: TIMEOUT_MS,
  });

  const attemptOf = ({ request = 1, attempt }: Header) =>
    attempt ?? attempts.get(request) ?? 0;
  const frame = (
    type: keyof typeof FrameType,
    payload: Uint8Array,
    { request = 1, sequence = 0, tokens = 0, attempt }: Header,
  ) => {
    const bytes = encodeFrame({
      type: FrameType[type],
      sequence,
      tokens,
      attempt: attemptOf({ request, attempt }),
    }, payload);
    const [message = assert.fail()] = encodeFrames([
      [idOf(request), bytes],
    ]);
    dispatcher.onFrameMessage(message);
  };
  const sinkOf = (request: number): AnswerSink => {
    const note = (what: string) => void events.push(`${what} ${request}`);
    const sink = {
      hasStarted: false,
      onPayload(payload: Uint8Array) {
        sink.hasStarted = true;
        note(`payload ${new TextDecoder().decode(payload)}`);
      },
      onEnd: () => note("end"),
      onError: (error: ApiError) => note(`error ${error.code}`),
      onAbandoned: () => note("abandoned"),
      onRestart: () => note("restart"),
      onTick: () => {},
    };
    return sink;
  };

  return {
    clock,
    bus,
    log,
    dispatcher,
    outcomes,
    /** The events since the last call, control records last. */
    async take(): Promise<string[]> {
      for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
      for (const flush of soon.splice(0)) flush();
      return events.splice(0);
    },
    /** Messages with control records so far. */
    controlMessages: () => messages,
    /** A beat with this many free slots. */
    beat: (worker: string, free = 1, draining = false) =>
      dispatcher.onBeatMessage(
        subjects.workerBeat(worker),
        encodeWorkerBeat({
          family: "chat",
          models: ["m"],
          draining,
          slots: Math.max(1, free),
          inFlight: free === 0 ? 1 : 0,
        }),
      ),
    ask(request = 1, content = "x"): StartedRun {
      const [requestId, keyId] = [idOf(request), `key_${request}`];
      const messages = [{ role: "user" as const, content }];
      const asked = { ...chatRequest({ messages }), model: "m" };
      const body = WholeBody.of(asked);
      const model = "m";
      const job = { requestId, keyId, kind: "chat", model, body } as const;
      return dispatcher.start(job, sinkOf(request), (outcome) => {
        outcomes.set(request, outcome);
        events.push(`over ${outcome.kind} ${request}`);
      });
    },
    accept: (worker = "w1", header: Header = {}) =>
      frame("ACCEPT", encodeJson({ worker }), header),
    data: (text: string, sequence: number, header: Header = {}) =>
      frame("DATA", new TextEncoder().encode(text), { ...header, sequence }),
    end: (sequence: number, worker = "w1", header: Header = {}) =>
      frame("END", encodeJson({ worker, usage: USAGE }), {
        ...header,
        sequence,
        tokens: 2,
      }),
    err: (sequence: number, retryable: boolean, header: Header = {}) => {
      const error = new ApiError("upstream_error", "It failed.");
      const payload = encodeErr("w1", { error, retryable, usage: null });
      frame("ERR", payload, { ...header, sequence });
    },
    reject: (
      reason: RejectReason,
      worker = "w1",
      { retryAfterMs = null, ...header }: Header & {
        retryAfterMs?: number | null;
      } = {},
    ) => {
      const payload = encodeJson({ worker, reason, retryAfterMs });
      frame("REJECT", payload, header);
    },
    noResponders: (header: Header = {}) =>
      dispatcher.onNoResponders(
        subjects.edgeStream(EDGE, idOf(header.request ?? 1), attemptOf(header)),
      ),
    /**
     * In small steps, because one large step would look like a stall of this process.
     * Probes are answered in between.
     */
    async tickTo(ms: number, onTick: () => void = () => {}): Promise<void> {
      while (clock.ms < ms) {
        clock.ms = Math.min(ms, clock.ms + STREAM_LIMITS.tickMs / 2);
        onTick();
        dispatcher.tick();
        for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
      }
    },
  };
}

export type Stage = ReturnType<typeof setup>;

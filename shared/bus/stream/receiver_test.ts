/** The edge's end of a stream: order, gaps, ends. */
import assert from "node:assert/strict";
import { STREAM_LIMITS } from "../../limits.ts";
import { ApiError } from "../../openai/error.ts";
import type { ControlRecord } from "./control.ts";
import { decodeFrame, encodeJson, type Frame, FrameType } from "./frame.ts";
import { encodeErr, encodeRejectFrame } from "./payloads.ts";
import {
  answerStrayFrame,
  type StreamEvent,
  StreamReceiver,
  type StreamReceiverOptions,
} from "./receiver.ts";

const OFFER_NUMBER = 2;
const { ackFrames, ackBytes, nakIntervalMs, tickMs } = STREAM_LIMITS;
const { silenceLostMs, silenceProbeMs, windowBytes } = STREAM_LIMITS;

const frameOf = (
  type: FrameType,
  sequence: number,
  payload: Uint8Array,
) => ({ type, sequence, offerNumber: OFFER_NUMBER, tokens: 0, payload });
const workerFrame = (type: FrameType, sequence: number, worker: string) =>
  frameOf(type, sequence, encodeJson({ worker, usage: null }));

const data = (sequence: number, bytes = 4) =>
  frameOf(FrameType.DATA, sequence, new Uint8Array(bytes));
const end = (sequence: number, worker = "w1") =>
  workerFrame(FrameType.END, sequence, worker);
const err = (sequence: number) => {
  const error = new ApiError("upstream_error", "No");
  const payload = encodeErr("w1", { error, retryable: true, usage: null });
  return frameOf(FrameType.ERR, sequence, payload);
};
const accept = (worker = "w1") => workerFrame(FrameType.ACCEPT, 0, worker);
const beat = (sequence: number, worker = "w1") =>
  workerFrame(FrameType.BEAT, sequence, worker);
const reject = () => {
  const rejection = { worker: "w1", reason: "full", retryAfterMs: 5 } as const;
  const frame = decodeFrame(encodeRejectFrame(OFFER_NUMBER, rejection));
  assert(frame !== null);
  return frame;
};
const broken = (type: FrameType) => frameOf(type, 1, new Uint8Array(0));

/** `ack w1 7`, `cancel w1 client_gone` */
function recordText(worker: string, record: ControlRecord): string {
  const rest = record.type === "cancel" ? record.reason : record.sequence;
  return `${record.type} ${worker} ${rest}`;
}

/** What happens to a receiver: a frame, the time until which it ticks, or a call. */
type Happening = Frame | number | ((receiver: StreamReceiver) => void);

const leave = (receiver: StreamReceiver) => receiver.cancel("client_gone");

/** What happens to a receiver at a time, and what comes of it. */
interface Step {
  nowMs: number;
  happening: Happening;
  /** Control records and events as short texts; default: none. */
  effects?: string[];
}

interface Case extends Partial<StreamReceiverOptions> {
  /** Frames that were delivered at time 0. */
  after?: number;
  /** The client takes nothing by itself. */
  isSlow?: boolean;
  steps: Step[];
}

/** `data 1`, `rejected full`; nothing for nothing. */
function textsOf(event: StreamEvent): string[] {
  switch (event.type) {
    case "nothing":
      return [];
    case "data":
      return [`data ${event.sequence}`];
    case "rejected":
      return [`rejected ${event.reject.reason}`];
    case "failed":
      return [`failed ${event.failure.error.code}`];
    case "lost":
      return [`lost ${event.reason}`];
    case "violated":
      return [`violated ${event.violation}`];
    default:
      return [event.type];
  }
}

function play({ after = 0, isSlow = false, steps, ...options }: Case): void {
  const actions: string[] = [];
  const receiver = new StreamReceiver({
    requestId: "r",
    offerNumber: OFFER_NUMBER,
    workerId: "w1",
    nowMs: 0,
    control: (worker, record) => void actions.push(recordText(worker, record)),
    ...options,
  });
  const note = (event: StreamEvent) => {
    actions.push(...textsOf(event));
    const isTaken = event.type === "data" && !isSlow;
    if (isTaken) receiver.delivered(event.sequence);
  };
  const first: Step[] = Array.from({ length: after }, (_, i) => ({
    nowMs: 0,
    happening: data(i + 1),
    effects: [`data ${i + 1}`],
  }));
  for (const { nowMs, happening, effects = [] } of [...first, ...steps]) {
    if (typeof happening === "function") happening(receiver);
    else if (typeof happening === "object") {
      note(receiver.onFrame(happening, nowMs));
    } else {
      for (let at = nowMs + tickMs; at <= happening; at += tickMs) {
        note(receiver.onTick(at));
      }
    }
    assert.deepEqual(actions.splice(0), effects, `at ${nowMs}`);
  }
}

const next = ackFrames + 1;
const CASES: { [promise: string]: Case } = {
  "REJECT is ignored once the answer has begun": {
    after: 1,
    steps: [{ nowMs: 1, happening: reject() }, {
      nowMs: 2,
      happening: data(2),
      effects: ["data 2"],
    }],
  },
  "a NAK that changes nothing is repeated by ticks, ever less often": {
    after: 1,
    steps: [
      { nowMs: 0, happening: data(3), effects: ["nak w1 2"] },
      { nowMs: 0, happening: nakIntervalMs, effects: ["nak w1 2"] },
      {
        nowMs: nakIntervalMs,
        happening: 3_000,
        effects: Array<string>(5).fill("nak w1 2"),
      },
    ],
  },
  "silence is probed with a NAK of the next frame": {
    after: 1,
    steps: [
      { nowMs: 0, happening: silenceProbeMs - tickMs },
      {
        nowMs: silenceProbeMs - tickMs,
        happening: silenceProbeMs,
        effects: ["nak w1 2"],
      },
      {
        nowMs: silenceProbeMs,
        happening: 2 * silenceProbeMs,
        effects: ["nak w1 2"],
      },
      { nowMs: 2 * silenceProbeMs, happening: beat(1), effects: ["ack w1 1"] },
      { nowMs: 2 * silenceProbeMs, happening: 3 * silenceProbeMs - tickMs },
    ],
  },
  "a reconnect sends a NAK at once, however recent the last one": {
    after: 1,
    steps: [
      { nowMs: 0, happening: data(3), effects: ["nak w1 2"] },
      { nowMs: 0, happening: nakIntervalMs, effects: ["nak w1 2"] },
      {
        nowMs: 0,
        happening: (receiver) => receiver.onReconnect(nakIntervalMs + 1),
        effects: ["nak w1 2"],
      },
    ],
  },
  "what the client has taken is acknowledged after ackFrames or ackBytes": {
    after: ackFrames - 1,
    steps: [
      {
        nowMs: 0,
        happening: data(ackFrames),
        effects: [`data ${ackFrames}`, `ack w1 ${ackFrames}`],
      },
      {
        nowMs: 0,
        happening: data(next, ackBytes - 17),
        effects: [`data ${next}`],
      },
      {
        nowMs: 0,
        happening: data(next + 1, 0),
        effects: [`data ${next + 1}`, `ack w1 ${next + 1}`],
      },
    ],
  },
  "more than the window is a violation": {
    isSlow: true,
    steps: [
      { nowMs: 0, happening: data(1, windowBytes - 16), effects: ["data 1"] },
      {
        nowMs: 0,
        happening: data(2, 1),
        effects: ["cancel w1 violation", "violated window"],
      },
    ],
  },
  "cancel() tells the worker and nothing follows": {
    after: 1,
    steps: [
      { nowMs: 0, happening: leave, effects: ["cancel w1 client_gone"] },
      { nowMs: 0, happening: leave },
      { nowMs: 1, happening: data(2), effects: ["stray"] },
      { nowMs: 1, happening: (receiver) => receiver.onReconnect(1) },
      { nowMs: 1, happening: 2 * silenceLostMs },
    ],
  },
};

for (const [promise, each] of Object.entries(CASES)) {
  Deno.test(`receiver: ${promise}`, () => play(each));
}

Deno.test("receiver: DATA, END, ERR and BEAT imply acceptance", () => {
  const table: { frame: Frame; effects: string[] }[] = [
    { frame: data(1), effects: ["data 1"] },
    { frame: end(1), effects: ["ack w1 1", "ended"] },
    { frame: err(1), effects: ["ack w1 1", "failed upstream_error"] },
    { frame: beat(0), effects: ["ack w1 0"] },
    { frame: data(2), effects: ["nak w1 1"] },
  ];
  for (const { frame, effects } of table) {
    play({
      steps: [{ nowMs: 1, happening: frame, effects }, {
        nowMs: 1,
        happening: ({ isAccepted }) => assert(isAccepted),
      }],
    });
  }
});

Deno.test("receiver: the end states the exact count, even below an earlier estimate", () => {
  const receiver = new StreamReceiver({
    requestId: "r",
    offerNumber: OFFER_NUMBER,
    workerId: "w1",
    nowMs: 0,
    control: () => {},
  });
  receiver.onFrame({ ...data(1), tokens: 10 }, 0);
  receiver.onFrame({ ...beat(1), tokens: 7 }, 0);
  assert.equal(receiver.tokens, 10);
  receiver.onFrame({ ...end(2), tokens: 4 }, 0);
  assert.equal(receiver.tokens, 4);
});

Deno.test("receiver: a broken payload and a second worker are violations", () => {
  const { DATA: _, ...types } = FrameType;
  const table: [Frame, string][] = [
    ...Object.values(types).map((type): [Frame, string] => {
      return [broken(type), "payload"];
    }),
    [accept("w2"), "worker"],
    [beat(0, "w2"), "worker"],
    [end(1, "w2"), "worker"],
  ];
  for (const [frame, violation] of table) {
    play({
      steps: [{
        nowMs: 0,
        happening: frame,
        effects: ["cancel w1 violation", `violated ${violation}`],
      }],
    });
  }
});

Deno.test("a stray frame that names its worker is answered: an end with an ACK, others with a CANCEL", () => {
  const table: [Frame, ...did: string[]][] = [
    [end(7), "ack w1 7"],
    [err(7), "ack w1 7"],
    [beat(7), "cancel w1 unknown_stream"],
    [accept(), "cancel w1 unknown_stream"],
    [data(7)],
    [reject()],
    [broken(FrameType.END)],
  ];
  for (const [frame, ...did] of table) {
    const messages: string[] = [];
    answerStrayFrame("r", frame, (worker, record) => {
      messages.push(recordText(worker, record));
    });
    assert.deepEqual(messages, did);
  }
});

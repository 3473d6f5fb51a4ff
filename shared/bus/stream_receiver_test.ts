import assert from "node:assert/strict";
import { DISPATCH_LIMITS, STREAM_LIMITS } from "../limits.ts";
import { ApiError } from "../openai/error.ts";
import type { ControlRecord } from "./control.ts";
import {
  decodeFrame,
  encodeAccept,
  encodeEnd,
  encodeErr,
  encodeRejectFrame,
  type Frame,
  FrameType,
} from "./frame.ts";
import {
  answerStrayFrame,
  type StreamEvent,
  StreamReceiver,
  type StreamReceiverOptions,
} from "./stream_receiver.ts";

const ATTEMPT = 2;
const { acceptMs } = DISPATCH_LIMITS;
const {
  ackFrames,
  ackBytes,
  nakIntervalMs,
  silenceLostMs,
  silenceProbeMs,
  tickMs,
  windowBytes,
} = STREAM_LIMITS;

const END_PAYLOAD = encodeEnd("w1", { usage: null, finishReasons: ["stop"] });
const ERR_PAYLOAD = encodeErr("w1", {
  error: new ApiError("upstream_error", "No"),
  retryable: true,
  usage: null,
});

const frameOf = (
  type: FrameType,
  sequence: number,
  payload: Uint8Array,
): Frame => ({
  type,
  sequence,
  attempt: ATTEMPT,
  tokens: sequence * 10,
  payload,
});

const data = (sequence: number, bytes = 4) =>
  frameOf(FrameType.DATA, sequence, new Uint8Array(bytes));
const end = (sequence: number) => frameOf(FrameType.END, sequence, END_PAYLOAD);
const err = (sequence: number) => frameOf(FrameType.ERR, sequence, ERR_PAYLOAD);
const accept = (worker = "w1") =>
  frameOf(FrameType.ACCEPT, 0, encodeAccept(worker));
const beat = (sequence: number, worker = "w1") =>
  frameOf(FrameType.BEAT, sequence, encodeAccept(worker));

function rejectFrame(): Frame {
  const frame = decodeFrame(
    encodeRejectFrame(ATTEMPT, {
      worker: "w1",
      reason: "full",
      retryAfterMs: 5,
    }),
  );
  assert(frame !== null);
  return frame;
}

/** `ack w1 7`, `cancel w1 client_gone` */
function said(worker: string, record: ControlRecord): string {
  const rest = record.type === "cancel" ? record.reason : record.sequence;
  return `${record.type} ${worker} ${rest}`;
}

/** A receiver whose actions are short texts; `isTaking`: the client takes everything at once. */
function start(
  options: Partial<StreamReceiverOptions> = {},
  isTaking: boolean = true,
) {
  const actions: string[] = [];
  const receiver = new StreamReceiver({
    requestId: "r",
    attempt: ATTEMPT,
    workerId: "w1",
    nowMs: 0,
    control: (worker, record) => void actions.push(said(worker, record)),
    ...options,
  });
  const note = (event: StreamEvent) => {
    const text = textOf(event, receiver.tokens);
    if (text !== null) actions.push(text);
    if (event.type === "data" && isTaking) receiver.delivered(event.sequence);
    return event.type !== "stray";
  };
  let isAccepted = false;
  const take = (received: Frame, nowMs: number) => {
    const at = actions.length;
    const event = receiver.onFrame(received, nowMs);
    if (receiver.isAccepted && !isAccepted) {
      isAccepted = true;
      actions.splice(at, 0, `accepted ${receiver.workerId}`);
    }
    return note(event);
  };
  /** The actions since the last call. */
  const did = () => actions.splice(0);
  /** Ticks until `untilMs`, from the tick after `fromMs`. */
  const tick = (fromMs: number, untilMs: number) => {
    for (let at = fromMs + tickMs; at <= untilMs; at += tickMs) {
      note(receiver.onTick(at));
    }
  };
  return { receiver, take, did, tick };
}

function textOf(event: StreamEvent, tokens: number): string | null {
  switch (event.type) {
    case "data":
      return `deliver ${event.sequence}`;
    case "rejected":
      return `rejected ${event.reject.reason}`;
    case "ended":
      return `ended ${tokens}`;
    case "failed":
      return `failed ${event.failure.error.code} ${tokens}`;
    case "lost":
      return `lost ${event.reason} ${tokens}`;
    case "violated":
      return `violated ${event.violation}`;
    default:
      return null;
  }
}

/** A receiver that has accepted and delivered frames 1 to `frames` at time 0. */
function startAt(frames: number) {
  const started = start();
  for (let i = 1; i <= frames; i++) started.take(data(i), 0);
  started.did();
  return started;
}

Deno.test("a receiver hands frames on in order and acknowledges the end", () => {
  const { receiver, take, did } = start();
  take(accept(), 1);
  assert.deepEqual(did(), ["accepted w1"]);
  take(data(1), 2);
  take(data(2), 3);
  assert.deepEqual(did(), ["deliver 1", "deliver 2"]);
  assert.equal(take(end(3), 4), true);
  assert.deepEqual(did(), ["ack w1 3", "ended 30"]);
  assert.equal(receiver.isOver, true);
});

Deno.test("DATA, END, ERR and BEAT imply acceptance, once", () => {
  const table: [name: string, frame: Frame, next: string][] = [
    ["DATA", data(1), "deliver 1"],
    ["END", end(1), "ack w1 1"],
    ["ERR", err(1), "ack w1 1"],
    ["BEAT", beat(0), "ack w1 0"],
    ["a later frame", data(2), "nak w1 1"],
  ];
  for (const [name, frame, next] of table) {
    const { take, did } = start();
    take(frame, 1);
    assert.deepEqual(did().slice(0, 2), ["accepted w1", next], name);
    take(accept(), 2);
    assert.deepEqual(did(), [], name);
  }
});

Deno.test("ERR ends the attempt with its error", () => {
  const { take, did } = startAt(1);
  take(err(2), 1);
  assert.deepEqual(did(), ["ack w1 2", "failed upstream_error 20"]);
});

Deno.test("REJECT ends the attempt as long as no answer has begun", () => {
  const fresh = start();
  fresh.take(rejectFrame(), 1);
  assert.deepEqual(fresh.did(), ["rejected full"]);
  assert.equal(fresh.receiver.isOver, true);

  const accepted = start();
  accepted.take(accept(), 1);
  accepted.take(rejectFrame(), 2);
  assert.deepEqual(accepted.did(), ["accepted w1", "rejected full"]);

  const begun = startAt(1);
  begun.take(rejectFrame(), 1);
  assert.deepEqual(begun.did(), []);
});

Deno.test("duplicates are dropped", () => {
  const { take, did } = startAt(3);
  for (let i = 1; i <= 3; i++) take(data(i), 1);
  assert.deepEqual(did(), []);
});

Deno.test("frames of another attempt are not taken", () => {
  const { receiver, take, did } = startAt(1);
  for (const attempt of [ATTEMPT - 1, ATTEMPT + 1]) {
    for (const frame of [data(2), end(2), beat(9), rejectFrame()]) {
      assert.equal(take({ ...frame, attempt }, 1), false);
    }
  }
  assert.deepEqual(did(), []);
  assert.equal(receiver.tokens, 10);
});

Deno.test("a gap is asked for at once, and nothing after it is handed on", () => {
  const { take, did } = startAt(1);
  take(data(3), 100);
  assert.deepEqual(did(), ["nak w1 2"]);
  take(data(4), 101);
  assert.deepEqual(did(), [], "too soon for another");
  take(data(2), 102);
  take(data(3), 102);
  take(data(4), 102);
  assert.deepEqual(did(), ["deliver 2", "deliver 3", "deliver 4"]);
});

Deno.test("a NAK that changes nothing is repeated by ticks, ever less often", () => {
  const { take, did, tick } = startAt(1);
  take(data(3), 0);
  did();
  tick(0, nakIntervalMs);
  assert.deepEqual(did(), ["nak w1 2"]);
  tick(nakIntervalMs, 3_000);
  const repeats = did();
  assert(repeats.every((action) => action === "nak w1 2"));
  assert.equal(repeats.length, 5);
});

Deno.test("a lost tail shows in the next BEAT", () => {
  const { take, did } = startAt(1);
  take(beat(3), 100);
  assert.deepEqual(did(), ["ack w1 1", "nak w1 2"]);
});

Deno.test("a BEAT is always answered with what is delivered, even nothing", () => {
  const { receiver, take, did } = start({}, false);
  take(beat(0), 1);
  assert.deepEqual(did(), ["accepted w1", "ack w1 0"]);
  take(data(1), 2);
  take(beat(1), 3);
  assert.deepEqual(did(), ["deliver 1", "ack w1 0"]);
  receiver.delivered(1);
  take(beat(1), 4);
  assert.deepEqual(did(), ["ack w1 1"]);
});

Deno.test("silence is probed with a NAK of the next frame", () => {
  const { take, did, tick } = startAt(1);
  tick(0, silenceProbeMs - tickMs);
  assert.deepEqual(did(), []);
  tick(silenceProbeMs - tickMs, silenceProbeMs);
  assert.deepEqual(did(), ["nak w1 2"]);
  tick(silenceProbeMs, 2 * silenceProbeMs);
  assert.deepEqual(did(), ["nak w1 2"]);
  take(beat(1), 2 * silenceProbeMs);
  did();
  tick(2 * silenceProbeMs, 3 * silenceProbeMs - tickMs);
  assert.deepEqual(did(), []);
});

Deno.test("a worker that stays silent is lost and cancelled", () => {
  const { did, tick } = startAt(1);
  tick(0, silenceLostMs - tickMs);
  did();
  tick(silenceLostMs - tickMs, silenceLostMs);
  assert.deepEqual(did(), ["cancel w1 worker_lost", "lost silent 10"]);
});

Deno.test("a worker that does not accept in time is lost and cancelled", () => {
  const { did, tick } = start();
  tick(0, acceptMs - tickMs);
  assert.deepEqual(did(), []);
  tick(acceptMs - tickMs, acceptMs);
  assert.deepEqual(did(), ["cancel w1 not_accepted", "lost not_accepted 0"]);
});

Deno.test("reconnecting asks at once, whatever was asked before", () => {
  const { receiver, take, did, tick } = startAt(1);
  take(data(3), 0);
  tick(0, 1_000);
  did();
  receiver.onReconnect(1_001);
  assert.deepEqual(did(), ["nak w1 2"]);
});

Deno.test("reconnecting asks nothing of a worker that has not accepted", () => {
  const { receiver, did } = start();
  receiver.onReconnect(1);
  assert.deepEqual(did(), []);
});

Deno.test("what the client took is acknowledged after ackFrames or ackBytes", () => {
  const small = start();
  for (let i = 1; i <= 2 * ackFrames; i++) small.take(data(i), 0);
  const acks = small.did().filter((action) => action.startsWith("ack"));
  assert.deepEqual(acks, [`ack w1 ${ackFrames}`, `ack w1 ${2 * ackFrames}`]);

  const large = start();
  large.take(data(1, ackBytes), 0);
  assert.equal(large.did().at(-1), "ack w1 1");
});

Deno.test("a client that takes nothing gets no credit", () => {
  const { receiver, take, did } = start({}, false);
  for (let i = 1; i <= ackFrames + 1; i++) take(data(i), 0);
  assert.deepEqual(did().filter((action) => action.startsWith("ack")), []);
  assert.equal(receiver.undeliveredBytes, (ackFrames + 1) * 20);
  receiver.delivered(ackFrames + 1);
  assert.deepEqual(did(), [`ack w1 ${ackFrames + 1}`]);
  assert.equal(receiver.undeliveredBytes, 0);
});

Deno.test("the end is acknowledged even if the client has not taken the rest", () => {
  const { receiver, take, did } = start({}, false);
  take(data(1), 0);
  take(end(2), 1);
  assert.deepEqual(did(), [
    "accepted w1",
    "deliver 1",
    "ack w1 2",
    "ended 20",
  ]);
  receiver.delivered(1);
  assert.deepEqual(did(), []);
});

Deno.test("more than the window is a violation", () => {
  const { take, did } = start({}, false);
  take(data(1, windowBytes - 16), 0);
  assert.equal(did().at(-1), "deliver 1");
  take(data(2, 1), 0);
  assert.deepEqual(did(), ["cancel w1 violation", "violated window"]);
});

Deno.test("a broken payload is a violation", () => {
  const nothing = new Uint8Array(0);
  for (
    const type of [
      FrameType.ACCEPT,
      FrameType.REJECT,
      FrameType.END,
      FrameType.ERR,
      FrameType.BEAT,
    ]
  ) {
    const { take, did } = start();
    take(frameOf(type, 1, nothing), 0);
    assert.deepEqual(did().slice(-2), [
      "cancel w1 violation",
      "violated payload",
    ]);
  }
});

Deno.test("a second worker is a violation", () => {
  const strangers = [
    accept("w2"),
    beat(0, "w2"),
    frameOf(
      FrameType.END,
      1,
      encodeEnd("w2", { usage: null, finishReasons: [] }),
    ),
  ];
  for (const frame of strangers) {
    const { take, did } = start();
    take(frame, 0);
    assert.equal(did().at(-1), "violated worker");
  }
});

Deno.test("a job for any worker belongs to the one that names itself", () => {
  const { receiver, take, did } = start({ workerId: null });
  take(data(1), 1);
  assert.deepEqual(did(), [], "nobody could be asked or acknowledged");
  take(beat(1, "w7"), 2);
  assert.deepEqual(did(), ["accepted w7", "ack w7 0", "nak w7 1"]);
  take(data(1), 3);
  assert.deepEqual(did(), ["deliver 1"]);
  assert.equal(receiver.workerId, "w7");
});

Deno.test("a job that no worker took is lost without a word to anybody", () => {
  const { did, tick } = start({ workerId: null });
  tick(0, acceptMs);
  assert.deepEqual(did(), ["lost not_accepted 0"]);
});

Deno.test("cancel() tells the worker and nothing follows", () => {
  const { receiver, take, did, tick } = startAt(1);
  receiver.cancel("client_gone");
  assert.deepEqual(did(), ["cancel w1 client_gone"]);
  receiver.cancel("client_gone");
  assert.equal(take(data(2), 1), false);
  receiver.delivered(1);
  receiver.onReconnect(1);
  tick(0, 2 * silenceLostMs);
  assert.deepEqual(did(), []);
});

Deno.test("tokens are the most that any frame of the attempt told", () => {
  const { receiver, take } = startAt(1);
  take(data(5), 1);
  assert.equal(receiver.tokens, 50);
  take(data(2), 2);
  assert.equal(receiver.tokens, 50);
});

Deno.test("a stray frame that names its worker is answered, the end by an ACK, the rest by a CANCEL", () => {
  for (
    const [frame, answer] of [
      [end(7), "ack w1 7"],
      [err(7), "ack w1 7"],
      [beat(7), "cancel w1 unknown_stream"],
      [accept(), "cancel w1 unknown_stream"],
      [data(7), undefined],
      [rejectFrame(), undefined],
      [{ ...end(7), payload: new Uint8Array(3) }, undefined],
    ] as const
  ) {
    const told: string[] = [];
    answerStrayFrame("r", frame, (worker, record) => {
      told.push(said(worker, record));
    });
    assert.equal(told[0], answer);
  }
});

Deno.test("delivered() for a frame that was never handed on is the driver's fault", () => {
  const { receiver } = startAt(2);
  assert.throws(() => receiver.delivered(3));
});

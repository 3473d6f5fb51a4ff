/** The worker's end of a stream: credit, repeats, ends. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { STREAM_LIMITS, type StreamLimits } from "../../limits.ts";
import { ApiError } from "../../openai/error.ts";
import type { ControlAction } from "./control.ts";
import { decodeFrame, FrameType } from "./frame.ts";
import { parseWorker } from "./payloads.ts";
import { ByteSlab, StreamSender } from "./sender.ts";

const OFFER_NUMBER = 3;
const FAILURE = {
  error: new ApiError("upstream_error", "No"),
  retryable: true,
  usage: null,
};
const { idleBeatMs, nakIntervalMs, endRetryMs, tickMs } = STREAM_LIMITS;

const NAMES = new Map(
  Object.entries(FrameType).map(([name, type]) => [type, name]),
);

/** A sender whose actions are short texts: `DATA 1`, `finished acked null`. */
function start(limits: Partial<StreamLimits> = {}) {
  const actions: string[] = [];
  const tokens: number[] = [];
  const frames: Uint8Array[] = [];
  const sender = new StreamSender({
    offerNumber: OFFER_NUMBER,
    workerId: "w1",
    nowMs: 0,
    limits: { ...STREAM_LIMITS, ...limits },
  }, {
    sendFrame(bytes) {
      frames.push(bytes);
      const frame = decodeFrame(bytes);
      assert(frame !== null);
      assert.equal(frame.offerNumber, OFFER_NUMBER);
      if (frame.type !== FrameType.DATA) {
        assert.equal(parseWorker(frame.payload), "w1");
      }
      tokens.push(frame.tokens);
      actions.push(`${NAMES.get(frame.type)} ${frame.sequence}`);
    },
    writable: () => {},
    finished: (outcome, reason) =>
      actions.push(`finished ${outcome} ${reason}`),
  });
  const did = () => actions.splice(0);
  const write = (bytes: number, count: number, nowMs: number) =>
    sender.write(new Uint8Array(bytes), count, nowMs);
  const tell = (
    action: ControlAction,
    nowMs: number,
    offerNumber = OFFER_NUMBER,
  ) => sender.onControl({ ...action, requestId: "r", offerNumber }, nowMs);
  const ack = (sequence: number, nowMs: number) =>
    tell({ type: "ack", sequence }, nowMs);
  const nak = (sequence: number, nowMs: number) =>
    tell({ type: "nak", sequence }, nowMs);
  /** Ticks until `untilMs`, from the tick after `fromMs`. */
  const tick = (fromMs: number, untilMs: number) => {
    for (let at = fromMs + tickMs; at <= untilMs; at += tickMs) {
      sender.onTick(at);
    }
  };
  return { sender, did, frames, write, tick, tokens, tell, ack, nak };
}

Deno.test("a sender numbers its frames from 1 and finishes when END is acknowledged", () => {
  const { sender, did, write, tokens, ack } = start();
  sender.accept(0);
  write(10, 1, 1);
  write(10, 2, 2);
  sender.end({ usage: null }, 2, 3);
  assert.deepEqual(did(), ["ACCEPT 0", "DATA 1", "DATA 2", "END 3"]);
  assert.deepEqual(tokens, [0, 1, 2, 2]);
  ack(2, 4);
  assert.deepEqual(did(), []);
  ack(3, 5);
  assert.deepEqual(did(), ["finished acked null"]);
});

Deno.test("a NAK for the next frame is a probe and answered by a BEAT", () => {
  const { did, write, nak } = start();
  write(10, 1, 1);
  did();
  nak(2, 100);
  assert.deepEqual(did(), ["BEAT 1"]);
  nak(2, 100 + nakIntervalMs - 1);
  assert.deepEqual(did(), []);
  nak(2, 100 + nakIntervalMs);
  assert.deepEqual(did(), ["BEAT 1"]);
});

Deno.test("invalid records change nothing", () => {
  const { sender, did, write, tell } = start();
  const ack = (sequence: number) => ({ type: "ack", sequence }) as const;
  const nak = (sequence: number) => ({ type: "nak", sequence }) as const;
  for (let i = 1; i <= 4; i++) write(10, i, i);
  tell(ack(2), 5);
  did();
  const { bufferedBytes } = sender;
  const table: { name: string; action: ControlAction; offerNumber?: number }[] =
    [
      { name: "NAK of what is acknowledged", action: nak(2) },
      { name: "NAK of 0", action: nak(0) },
      { name: "NAK beyond the next", action: nak(6) },
      {
        name: "NAK of an older offer",
        action: nak(3),
        offerNumber: OFFER_NUMBER - 1,
      },
      {
        name: "NAK of a newer offer",
        action: nak(3),
        offerNumber: OFFER_NUMBER + 1,
      },
      {
        name: "ACK of an older offer",
        action: ack(4),
        offerNumber: OFFER_NUMBER - 1,
      },
      { name: "ACK of what was never sent", action: ack(5) },
      { name: "ACK again", action: ack(2) },
      { name: "ACK of 0", action: ack(0) },
      {
        name: "CANCEL",
        action: { type: "cancel", reason: "client_gone" },
        offerNumber: OFFER_NUMBER - 1,
      },
    ];
  for (const { name, action, offerNumber } of table) {
    tell(action, 100, offerNumber);
    assert.deepEqual(did(), [], name);
    assert.equal(sender.bufferedBytes, bufferedBytes, name);
  }
  tell(nak(3), 200);
  assert.deepEqual(did(), ["DATA 3", "DATA 4"], "still whole");
});

Deno.test("an idle or blocked sender beats with its last sequence number and all tokens, also those that wait", () => {
  const { did, write, tick, tokens } = start({ windowBytes: 100 });
  write(84, 3, 0);
  write(84, 5, 0);
  assert.deepEqual(did(), ["DATA 1"]);
  tick(0, idleBeatMs - tickMs);
  assert.deepEqual(did(), []);
  tick(idleBeatMs - tickMs, idleBeatMs);
  assert.deepEqual(did(), ["BEAT 1"]);
  assert.equal(tokens.at(-1), 5);
  tick(idleBeatMs, 2 * idleBeatMs);
  assert.deepEqual(did(), ["BEAT 1"]);
});

Deno.test("a busy sender beats once a second while it receives nothing", () => {
  const { sender, did, write, ack } = start();
  const halves = [
    { fromMs: 0, isHeard: false, beats: 2 },
    { fromMs: 3_000, isHeard: true, beats: 0 },
  ];
  for (const { fromMs, isHeard, beats } of halves) {
    for (let at = fromMs; at < fromMs + 3_000; at += tickMs) {
      write(1, at, at);
      if (isHeard) ack(1, at);
      sender.onTick(at);
    }
    const isBeat = (action: string) => action.startsWith("BEAT");
    assert.equal(did().filter(isBeat).length, beats);
  }
});

Deno.test("write() and a second end() throw after the end", () => {
  const { sender, write } = start();
  sender.end({ usage: null }, 0, 0);
  assert.equal(sender.isWritable, false);
  assert.throws(() => write(1, 1, 1), /has ended/);
  assert.throws(() => sender.end({ usage: null }, 1, 1), /has ended/);
  assert.throws(() => sender.fail(FAILURE, 1, 1), /has ended/);
});

Deno.test("frames are cut at framePayloadBytesMax, and tokens count with the last piece", () => {
  for (const [bytes, expected] of [[40, [5]], [41, [0, 5]]] as const) {
    const { write, tokens } = start({ framePayloadBytesMax: 40 });
    write(bytes, 5, 1);
    assert.deepEqual(tokens, expected, `${bytes}`);
  }
});

Deno.test("a sender counts the frames it sent and those it sent again", () => {
  const { sender, write, tick, nak } = start();
  const counts = () => [sender.framesSent, sender.framesRepeated];
  for (const at of [1, 2, 3]) write(10, at, at);
  assert.deepEqual(counts(), [3, 0]);
  nak(2, 100);
  assert.deepEqual(counts(), [5, 2]);
  sender.end({ usage: null }, 3, 101);
  tick(101, 101 + endRetryMs + tickMs);
  assert.deepEqual(counts(), [7, 3]);
});

Deno.test("memory of acknowledged frames is used again, but not before one that was sent again has left", () => {
  const { frames, write, ack, nak } = start();
  write(1, 1, 1_000);
  nak(1, 2_000);
  ack(1, 2_000);
  write(1, 1, 2_000);
  assert.deepEqual(frames.map((f) => decodeFrame(f)?.sequence), [1, 1, 2]);
  ack(2, 3_000);
  write(1, 1, 3_000);
  assert.equal(frames[3]?.byteOffset, frames[0]?.byteOffset);
});

Deno.test("pieces of a ByteSlab do not overlap; it grows to its bound, and a large piece does not hold a slab", () => {
  const slab = new ByteSlab();
  const pieces = Array.from({ length: 500 }, (_, i) => {
    const piece = slab.take(i % 300);
    assert.equal(piece.length, i % 300);
    return piece.fill(i % 255 + 1);
  });
  pieces.forEach((piece, i) =>
    assert(piece.every((byte) => byte === i % 255 + 1), `piece ${i}`)
  );
  const sizes = new Set(pieces.map(({ buffer }) => buffer.byteLength));
  // Below 4 KiB, they are parts of the pool.
  assert.deepEqual([...sizes], [0, Buffer.poolSize, 4_096]);
  assert.equal(slab.take(2_049).buffer.byteLength, 2_049);
});

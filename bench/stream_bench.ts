/** The cost of one chunk of 220 bytes on each end, actions included: `deno bench bench/stream_bench.ts` */
import { ByteSlab } from "@gateway/shared/bus/byte_slab";
import { decodeFrame } from "@gateway/shared/bus/frame";
import { StreamReceiver } from "@gateway/shared/bus/stream_receiver";
import { StreamSender } from "@gateway/shared/bus/stream_sender";
import {
  LineAssembler,
  sseFrame,
} from "../services/edge-auth/chat/sse_lines.ts";

const FRAMES = 1_000;
const line = new TextEncoder().encode("x".repeat(219) + "\n");

function makeSender(sendFrame: (frame: Uint8Array) => void): StreamSender {
  return new StreamSender({ attempt: 1, workerId: "w1", nowMs: 0 }, {
    sendFrame,
    writable: () => {},
    finished: () => {},
  });
}

/** Takes all messages and hands their payloads on. */
function receiveAll(onLines: (payload: Uint8Array) => void): void {
  const control = { ack: () => {}, nak: () => {}, cancel: () => {} };
  const receiver = new StreamReceiver({
    requestId: "0".repeat(32),
    attempt: 1,
    workerId: "w1",
    nowMs: 0,
    controlFor: () => control,
  });
  for (const message of messages) {
    const frame = decodeFrame(message);
    if (typeof frame === "string") continue;
    const event = receiver.onFrame(frame, 0);
    if (event.type !== "data") continue;
    onLines(event.payload);
    receiver.delivered(event.sequence);
  }
}

const messages: Uint8Array[] = [];
const source = makeSender((frame) => messages.push(frame));
for (let i = 1; i <= FRAMES; i++) {
  source.write(line, i, i);
  source.onAck(1, i, i);
}

Deno.bench(`sender: write ${FRAMES} frames, ACK every 32`, () => {
  const sender = makeSender(() => {});
  for (let i = 1; i <= FRAMES; i++) {
    sender.write(line, i, i);
    if (i % 32 === 0) sender.onAck(1, i, i);
  }
});

Deno.bench(`receiver: decode and deliver ${FRAMES} frames`, () => {
  receiveAll(() => {});
});

Deno.bench(`receiver: the same, and ${FRAMES} server-sent events`, () => {
  const slab = new ByteSlab();
  const lines = new LineAssembler(1_048_576);
  receiveAll((payload) => {
    const whole = lines.push(payload);
    if (whole !== null && whole.length > 0) sseFrame(whole, slab);
  });
});

const four = new Uint8Array([...line, ...line, ...line, ...line]);

Deno.bench(`sseFrame: ${FRAMES} lines, four a frame`, () => {
  const slab = new ByteSlab();
  for (let i = 0; i < FRAMES / 4; i++) sseFrame(four, slab);
});

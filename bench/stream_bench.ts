/** The cost of one chunk of 220 bytes on each end, actions included: `deno bench bench/stream_bench.ts` */
import { ByteSlab } from "@gateway/shared/bus/byte_slab";
import { decodeFrame } from "@gateway/shared/bus/frame";
import { LineAssembler } from "@gateway/shared/bus/line_assembler";
import { sseFrame } from "@gateway/shared/bus/sse_frame";
import { StreamReceiver } from "@gateway/shared/bus/stream_receiver";
import { StreamSender } from "@gateway/shared/bus/stream_sender";

const FRAMES = 1_000;
const line = new TextEncoder().encode("x".repeat(219) + "\n");

function makeSender(sendFrame: (frame: Uint8Array) => void): StreamSender {
  return new StreamSender({ attempt: 1, workerId: "w1", nowMs: 0 }, {
    sendFrame,
    writable: () => {},
    finished: () => {},
  });
}

function makeReceiver(
  onLines: (payload: Uint8Array) => void,
): StreamReceiver {
  const receiver: StreamReceiver = new StreamReceiver(
    { attempt: 1, workerId: "w1", nowMs: 0 },
    {
      accepted: () => {},
      rejected: () => {},
      deliver: (payload, sequence) => {
        onLines(payload);
        receiver.delivered(sequence);
      },
      ended: () => {},
      failed: () => {},
      lost: () => {},
      violated: () => {},
      sendAck: () => {},
      sendNak: () => {},
      sendCancel: () => {},
    },
  );
  return receiver;
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
  const receiver = makeReceiver(() => {});
  for (const message of messages) {
    const frame = decodeFrame(message);
    if (typeof frame === "object") receiver.onFrame(frame, 0);
  }
});

Deno.bench(`receiver: the same, and ${FRAMES} server-sent events`, () => {
  const slab = new ByteSlab();
  const lines = new LineAssembler(1_048_576);
  const receiver = makeReceiver((payload) => {
    const whole = lines.push(payload);
    if (whole !== null && whole.length > 0) sseFrame(whole, slab);
  });
  for (const message of messages) {
    const frame = decodeFrame(message);
    if (typeof frame === "object") receiver.onFrame(frame, 0);
  }
});

const four = new Uint8Array([...line, ...line, ...line, ...line]);

Deno.bench(`sseFrame: ${FRAMES} lines, four a frame`, () => {
  const slab = new ByteSlab();
  for (let i = 0; i < FRAMES / 4; i++) sseFrame(four, slab);
});

import assert from "node:assert/strict";
import { encodeFrame, FrameType } from "@gateway/shared/bus/frame";
import { createFrameOutbox } from "./frame_outbox.ts";

const EMPTY = new Uint8Array(0);

function setup(isBusy: boolean) {
  const sent: string[] = [];
  const soon: (() => void)[] = [];
  const sendFrame = createFrameOutbox({
    publish: (subject, frame) => void sent.push(`${subject}${frame[1]}`),
    scheduleSoon: (flush) => void soon.push(flush),
    isBusy: () => isBusy,
  });
  const send = (subject: string, type: FrameType) =>
    sendFrame(
      subject,
      encodeFrame({ type, sequence: 1, attempt: 1, tokens: 0 }, EMPTY),
    );
  return { sent, soon, send };
}

Deno.test("a quiet worker sends tokens at once", () => {
  const { sent, soon, send } = setup(false);
  send("a", FrameType.DATA);
  assert.deepEqual(sent, [`a${FrameType.DATA}`]);
  assert.equal(soon.length, 0);
});

Deno.test("tokens of a busy worker wait for each other and leave in order", () => {
  const { sent, soon, send } = setup(true);
  send("a", FrameType.DATA);
  send("b", FrameType.DATA);
  send("a", FrameType.DATA);
  assert.deepEqual(sent, []);
  assert.equal(soon.length, 1);
  soon.shift()?.();
  assert.deepEqual(sent, ["a3", "b3", "a3"]);
  send("c", FrameType.DATA);
  assert.equal(soon.length, 1, "scheduled again");
});

Deno.test("everything but tokens goes at once and takes waiting tokens along", () => {
  for (
    const type of [
      FrameType.ACCEPT,
      FrameType.REJECT,
      FrameType.END,
      FrameType.ERR,
      FrameType.BEAT,
    ]
  ) {
    const { sent, soon, send } = setup(true);
    send("a", FrameType.DATA);
    send("b", type);
    assert.deepEqual(sent, ["a3", `b${type}`]);
    soon.shift()?.();
    assert.equal(sent.length, 2, "nothing twice");
  }
});

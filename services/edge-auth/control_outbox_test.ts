import assert from "node:assert/strict";
import { CONTROL_RECORD_BYTES } from "@gateway/shared/bus/control";
import { ControlOutbox } from "./control_outbox.ts";

const REQUEST_ID = "0".repeat(32);

function setup() {
  const turn: (() => void)[] = [];
  const sent: { subject: string; records: number }[] = [];
  const outbox = new ControlOutbox({
    publish: (subject, payload) =>
      void sent.push({
        subject,
        records: (payload.length - 1) / CONTROL_RECORD_BYTES,
      }),
    schedule: (flush) => void turn.push(flush),
  });
  const endTurn = () => {
    for (const flush of turn.splice(0)) flush();
  };
  return { outbox, sent, endTurn };
}

Deno.test("ControlOutbox sends one message to each worker and turn", () => {
  const { outbox, sent, endTurn } = setup();
  outbox.to("w1").ack(REQUEST_ID, 1, 1);
  outbox.to("w1").ack(REQUEST_ID, 1, 2);
  outbox.to("w2").nak(REQUEST_ID, 1, 1);
  assert.deepEqual(sent, []);
  endTurn();
  endTurn();
  assert.deepEqual(sent, [
    { subject: "gw.v1.chat.ctl.w1", records: 2 },
    { subject: "gw.v1.chat.ctl.w2", records: 1 },
  ]);
});

Deno.test("ControlOutbox keeps nothing for a worker that is gone, but sends what there was", () => {
  const { outbox, sent, endTurn } = setup();
  for (let worker = 0; worker < 100; worker += 1) {
    outbox.to(`w${worker}`).cancel(REQUEST_ID, 1, "worker_lost");
    outbox.forget(`w${worker}`);
    outbox.to(`w${worker}`).cancel(REQUEST_ID, 2, "worker_lost");
    endTurn();
  }
  assert.equal(outbox.size, 0);
  assert.equal(sent.length, 100);
  assert.ok(sent.every(({ records }) => records === 2));
});

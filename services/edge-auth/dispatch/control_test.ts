import assert from "node:assert/strict";
import { decodeControl } from "@gateway/shared/bus/control";
import { chatControlSubject } from "@gateway/shared/bus/subjects";
import { ControlOutbox } from "./control.ts";

const A = "a".repeat(32);
const B = "b".repeat(32);

function setup() {
  const sent: string[] = [];
  const now: (() => void)[] = [];
  const soon: (() => void)[] = [];
  const outbox = new ControlOutbox({
    publish: (subject, payload) => {
      decodeControl(payload, {
        ack: (id, attempt, sequence) =>
          void sent.push(`${subject} ack ${id[0]} ${attempt}.${sequence}`),
        nak: (id, attempt, from) =>
          void sent.push(`${subject} nak ${id[0]} ${attempt}.${from}`),
        cancel: (id, attempt, reason) =>
          void sent.push(`${subject} cancel ${id[0]} ${attempt} ${reason}`),
      });
      sent.push("--");
    },
    schedule: (flush) => void now.push(flush),
    scheduleSoon: (flush) => void soon.push(flush),
  });
  const run = (queue: (() => void)[]) => {
    for (const flush of queue.splice(0)) flush();
  };
  return { outbox, sent, now, soon, run };
}

const W1 = chatControlSubject("w1");
const W2 = chatControlSubject("w2");

Deno.test("acknowledgements for one worker travel together, in a moment", () => {
  const { outbox, sent, now, soon, run } = setup();
  outbox.to("w1").ack(A, 1, 5);
  outbox.to("w1").ack(B, 2, 7);
  outbox.to("w2").ack(A, 1, 9);
  assert.equal(now.length, 0);
  assert.equal(soon.length, 1);
  run(soon);
  assert.deepEqual(sent, [
    `${W1} ack a 1.5`,
    `${W1} ack b 2.7`,
    "--",
    `${W2} ack a 1.9`,
    "--",
  ]);
});

Deno.test("what repairs or stops goes at once and takes acknowledgements along", () => {
  for (const urgent of ["nak", "cancel"] as const) {
    const { outbox, sent, now, soon, run } = setup();
    outbox.to("w1").ack(A, 1, 5);
    if (urgent === "nak") outbox.to("w1").nak(A, 1, 6);
    else outbox.to("w1").cancel(A, 1, "client_gone");
    assert.equal(now.length, 1);
    run(now);
    assert.equal(sent.length, 3);
    run(soon);
    assert.equal(sent.length, 3, "nothing twice");
  }
});

Deno.test("a flush is scheduled again after it ran", () => {
  const { outbox, sent, soon, run } = setup();
  outbox.to("w1").ack(A, 1, 1);
  run(soon);
  outbox.to("w1").ack(A, 1, 2);
  run(soon);
  assert.deepEqual(sent, [`${W1} ack a 1.1`, "--", `${W1} ack a 1.2`, "--"]);
});

Deno.test("nothing is kept for a worker once its records are out", () => {
  const { outbox, sent, now, run } = setup();
  for (let worker = 0; worker < 100; worker += 1) {
    outbox.to(`w${worker}`).cancel(A, 1, "worker_lost");
    assert.equal(outbox.size, 1);
    run(now);
  }
  assert.equal(outbox.size, 0);
  assert.equal(sent.filter((line) => line === "--").length, 100);
});

import assert from "node:assert/strict";
import { STREAM_LIMITS } from "../limits.ts";
import { DeliveryCredit } from "./delivery_credit.ts";

const { ackBytes, ackFrames, windowBytes } = STREAM_LIMITS;

Deno.test("DeliveryCredit owes an ACK after ackFrames", () => {
  const credit = new DeliveryCredit(STREAM_LIMITS);
  for (let round = 0; round < 3; round++) {
    for (let i = 1; i <= ackFrames; i++) {
      const sequence = round * ackFrames + i;
      credit.add(20);
      assert.equal(credit.take(sequence), i === ackFrames, `${sequence}`);
    }
    assert.equal(credit.acknowledge(), (round + 1) * ackFrames);
  }
});

Deno.test("DeliveryCredit owes an ACK after ackBytes", () => {
  const table: [bytes: number, isDue: boolean][] = [
    [ackBytes - 1, false],
    [ackBytes, true],
    [ackBytes + 1, true],
  ];
  for (const [bytes, isDue] of table) {
    const credit = new DeliveryCredit(STREAM_LIMITS);
    credit.add(bytes - 100);
    assert.equal(credit.take(1), false);
    credit.add(100);
    assert.equal(credit.take(2), isDue, `${bytes}`);
  }
});

Deno.test("DeliveryCredit holds the window", () => {
  const credit = new DeliveryCredit(STREAM_LIMITS);
  assert.equal(credit.add(windowBytes - 1), true);
  assert.equal(credit.add(1), true);
  assert.equal(credit.undeliveredBytes, windowBytes);
  assert.equal(credit.add(1), false);
});

Deno.test("what the client took is free again, all up to the frame it named", () => {
  const credit = new DeliveryCredit(STREAM_LIMITS);
  for (let i = 0; i < 4; i++) credit.add(1_000);
  credit.take(3);
  assert.equal(credit.undeliveredBytes, 1_000);
  assert.equal(credit.take(3), false, "again");
  assert.equal(credit.take(1), false, "older");
  assert.equal(credit.undeliveredBytes, 1_000);
});

Deno.test("take() of a frame that was never handed on is the driver's fault", () => {
  const credit = new DeliveryCredit(STREAM_LIMITS);
  credit.add(1);
  assert.throws(() => credit.take(2), /not handed on/);
});

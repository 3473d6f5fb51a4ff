import assert from "node:assert/strict";
import { WaitQueue } from "./wait_queue.ts";

function setup(lengthMax = 3) {
  const clock = { ms: 0 };
  const queue = new WaitQueue<string>({
    lengthMax,
    waitMsMax: 2_000,
  });
  return { clock, queue };
}

Deno.test("push() refuses beyond the bound", () => {
  const { clock, queue } = setup(2);
  assert.equal(queue.push("a", "m", clock.ms), true);
  assert.equal(queue.push("b", "m", clock.ms), true);
  assert.equal(queue.push("c", "m", clock.ms), false);
  queue.remove("a");
  assert.equal(queue.push("c", "m", clock.ms), true);
});

Deno.test("offer() asks in order of arrival, and nobody behind one that is not taken", () => {
  const { queue } = setup(1_000);
  for (let item = 0; item < 1_000; item += 1) queue.push(`${item}`, "m", item);
  const asked: string[] = [];
  const takeOne = (item: string) => asked.push(item) === 1;
  queue.offer(takeOne);
  assert.deepEqual(asked, ["0", "1"]);
  assert.equal(queue.length, 999);
});

Deno.test("a model without room holds up no other model", () => {
  const { queue } = setup();
  queue.push("a", "full", 0);
  queue.push("b", "free", 1);
  const taken: string[] = [];
  queue.offer((item) => item === "b" && taken.push(item) > 0);
  assert.deepEqual(taken, ["b"]);
  assert.equal(queue.hasWaiting("full"), true);
  assert.equal(queue.hasWaiting("free"), false);
});

Deno.test("an item that was offered and refused is again before those that came later", () => {
  const { queue } = setup();
  queue.push("first", "m", 0);
  queue.push("second", "m", 1);
  queue.remove("first");
  queue.push("first", "m", 0);
  const asked: string[] = [];
  queue.offer((item) => asked.push(item) > 0);
  assert.deepEqual(asked, ["first", "second"]);
});

Deno.test("offer() does not ask for what left meanwhile", () => {
  const { clock, queue } = setup();
  for (const item of ["a", "b"]) queue.push(item, "m", clock.ms);
  const asked: string[] = [];
  queue.offer((item) => {
    asked.push(item);
    queue.remove("b");
    return true;
  });
  assert.deepEqual(asked, ["a"]);
});

Deno.test("expire() gives out what waited exactly the bound, and no sooner", () => {
  const { clock, queue } = setup();
  queue.push("a", "m", clock.ms);
  clock.ms = 1;
  queue.push("b", "m", clock.ms);
  clock.ms = 1_999;
  assert.deepEqual(queue.expire(clock.ms), []);
  clock.ms = 2_000;
  assert.deepEqual(queue.expire(clock.ms), ["a"]);
  clock.ms = 2_001;
  assert.deepEqual(queue.expire(clock.ms), ["b"]);
  assert.equal(queue.length, 0);
});

Deno.test("expire() counts from when an item began to wait, not from its last push", () => {
  const { clock, queue } = setup();
  queue.push("fresh", "m", 1_500);
  queue.push("again", "m", 0);
  clock.ms = 2_000;
  assert.deepEqual(queue.expire(clock.ms), ["again"]);
});

import assert from "node:assert/strict";
import { WaitQueue } from "./wait_queue.ts";

function setup(lengthMax = 3) {
  const clock = { ms: 0 };
  const queue = new WaitQueue<string>({
    now: () => clock.ms,
    lengthMax,
    waitMsMax: 2_000,
  });
  return { clock, queue };
}

Deno.test("push() refuses beyond the bound", () => {
  const { clock, queue } = setup(2);
  assert.equal(queue.push("a", clock.ms), true);
  assert.equal(queue.push("b", clock.ms), true);
  assert.equal(queue.push("c", clock.ms), false);
  queue.remove("a");
  assert.equal(queue.push("c", clock.ms), true);
});

Deno.test("offer() asks in order of arrival and keeps what is not taken", () => {
  const { clock, queue } = setup();
  for (const item of ["a", "b", "c"]) queue.push(item, clock.ms);
  const asked: string[] = [];
  queue.offer((item) => {
    asked.push(item);
    return item === "b";
  });
  assert.deepEqual(asked, ["a", "b", "c"]);
  assert.equal(queue.length, 2);
});

Deno.test("offer() does not ask for what left meanwhile", () => {
  const { clock, queue } = setup();
  for (const item of ["a", "b"]) queue.push(item, clock.ms);
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
  queue.push("a", clock.ms);
  clock.ms = 1;
  queue.push("b", clock.ms);
  clock.ms = 1_999;
  assert.deepEqual(queue.expire(), []);
  clock.ms = 2_000;
  assert.deepEqual(queue.expire(), ["a"]);
  clock.ms = 2_001;
  assert.deepEqual(queue.expire(), ["b"]);
  assert.equal(queue.length, 0);
});

Deno.test("expire() counts from when an item began to wait, not from its last push", () => {
  const { clock, queue } = setup();
  queue.push("fresh", 1_500);
  queue.push("again", 0);
  clock.ms = 2_000;
  assert.deepEqual(queue.expire(), ["again"]);
});

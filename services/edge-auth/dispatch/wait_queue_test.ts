/** In what order requests that wait are offered, and who waits when many do. */
import assert from "node:assert/strict";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { type Waiting, WaitQueue } from "./wait_queue.ts";

Deno.test("a queue offers in order of arrival, and skips items that were removed or whose model is full", () => {
  let questions = "";
  let takes = (_name: string) => false;
  const item = (name: string, sinceMs: number, model = "m") => ({
    job: { keyId: "key" },
    lane: model,
    family: "chat" as const,
    sinceMs,
    offer() {
      questions += name;
      return takes(name);
    },
    giveUp: () => assert.fail(name),
  });
  const queue = new WaitQueue();
  const offer = (taking: typeof takes) => {
    takes = taking;
    questions = "";
    queue.offer();
    return questions;
  };
  const [a, b, c, d] = [item("a", 1), item("b", 2), item("c", 3), item("d", 4)];
  const [x, y] = [item("x", 0, "full"), item("y", 1, "full")];
  for (const each of [d, b, a, c, x, y]) queue.push(each);
  assert.equal(offer((name) => name === "a"), "xab");
  assert.equal(queue.hasWaiting("full"), true);
  // One that was refused is again before those that came later.
  queue.push(a);
  for (const each of [x, y]) queue.remove(each);
  assert.equal(queue.hasWaiting("full"), false);
  const removesC = (name: string) => {
    if (name === "b") queue.remove(c);
    return true;
  };
  assert.equal(offer(removesC), "abd");
  assert.equal(queue.length, 0);
});

/** An item of a key that writes down what becomes of it. */
function itemOf(keyId: string, sinceMs: number, events: string[]): Waiting {
  const note = (what: string) => void events.push(`${what} ${keyId}${sinceMs}`);
  return {
    job: { keyId },
    lane: "m",
    family: "chat",
    sinceMs,
    offer() {
      note("offered");
      return true;
    },
    giveUp: () => note("gave up"),
  };
}

/** `holders`: the keys of those that hold a slot. */
const TURNS = [
  { holders: [], order: ["a0", "b3", "c4", "a1", "b5", "a2"] },
  { holders: ["a"], order: ["b3", "c4", "a0", "b5", "a1", "a2"] },
  { holders: ["a", "a", "c"], order: ["b3", "c4", "b5", "a0", "a1", "a2"] },
];

for (const { holders, order } of TURNS) {
  const names = holders.length === 0 ? "nobody" : holders.join(" and ");
  Deno.test(`in a queue the keys with the fewest slots come first, where ${names} has one`, () => {
    const events: string[] = [];
    const queue = new WaitQueue(() =>
      holders.map((each) => itemOf(each, 0, []))
    );
    for (const at of [0, 1, 2]) queue.push(itemOf("a", at, events));
    for (const at of [3, 5]) queue.push(itemOf("b", at, events));
    queue.push(itemOf("c", 4, events));
    queue.offer();
    assert.deepEqual(events, order.map((each) => `offered ${each}`));
  });
}

Deno.test("in a full queue the key with the most requests makes place for others, never for itself", () => {
  const { queueMax } = DISPATCH_LIMITS;
  const events: string[] = [];
  const queue = new WaitQueue();
  for (let at = 0; at < queueMax; at += 1) {
    assert.ok(queue.push(itemOf("a", at, events)));
  }
  assert.equal(queue.push(itemOf("a", queueMax, events)), false);
  assert.deepEqual(events, []);
  const half = queueMax / 2;
  for (let n = 1; n <= half; n += 1) {
    assert.ok(queue.push(itemOf("b", queueMax + n, events)));
    assert.equal(events.at(-1), `gave up a${queueMax - n}`);
  }
  // Each has a half: one more would only be taken from the other.
  assert.equal(queue.push(itemOf("b", 2 * queueMax, events)), false);
  assert.equal(events.length, half);
  assert.equal(queue.length, queueMax);
});

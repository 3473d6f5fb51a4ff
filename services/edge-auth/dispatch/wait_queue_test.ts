/** In what order requests that wait are offered. */
import assert from "node:assert/strict";
import { WaitQueue } from "./wait_queue.ts";

Deno.test("a queue offers in order of arrival, and skips items that were removed or whose model is full", () => {
  let asked = "";
  let takes = (_name: string) => false;
  const item = (name: string, sinceMs: number, model = "m") => ({
    model,
    family: "chat" as const,
    sinceMs,
    offer() {
      asked += name;
      return takes(name);
    },
  });
  const queue = new WaitQueue();
  const offer = (taking: typeof takes) => {
    takes = taking;
    asked = "";
    queue.offer();
    return asked;
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

import assert from "node:assert/strict";
import { WaitQueue } from "./wait_queue.ts";

/** The items that are asked, in order, while `takes` takes them. */
function asked(queue: WaitQueue<string>, takes: (item: string) => boolean) {
  const items: string[] = [];
  queue.offer((item) => {
    items.push(item);
    return takes(item);
  });
  return items.join("");
}

Deno.test("offer() goes in order of arrival, and skips items after a refused one of the same model and items that were removed", () => {
  const queue = new WaitQueue<string>(1_000);
  for (const item of "abcd") queue.push(item, "m", item.charCodeAt(0));
  queue.push("x", "full", 0);
  queue.push("y", "full", 1);
  assert.equal(asked(queue, (item) => item === "a"), "xab");
  assert.equal(queue.length, 5);
  assert.equal(queue.hasWaiting("full"), true);
  // One that was refused is again before those that came later.
  queue.push("a", "m", 1);
  queue.remove("x");
  queue.remove("y");
  assert.equal(queue.hasWaiting("full"), false);
  const takes = (item: string) => {
    if (item === "b") queue.remove("c");
    return true;
  };
  assert.equal(asked(queue, takes), "abd");
  assert.equal(queue.length, 0);
});

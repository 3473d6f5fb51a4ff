/** Maps that forget. */
import assert from "node:assert/strict";
import { LiveMap, remember } from "./maps.ts";

Deno.test("a live map keeps the order of its keys, and forgets what is removed while it is visited", () => {
  const map = new LiveMap<number>();
  map.set("a", 1);
  map.set("b", 2);
  map.set("a", 3);
  assert.deepEqual([map.size, map.get("a"), map.values()], [2, 3, [3, 2]]);
  assert.equal(map.delete("a"), true);
  assert.equal(map.delete("a"), false);
  map.set("a", 4);
  assert.deepEqual([map.size, map.get("a"), map.values()], [2, 4, [2, 4]]);
  assert.deepEqual([map.get("c"), map.size], [null, 2]);
  for (const value of map.values()) {
    map.delete("b");
    map.set(`after ${value}`, value);
  }
  assert.deepEqual(map.values(), [4, 2, 4]);
});

Deno.test("remember() drops the entry that was set least recently", () => {
  const map = new Map<string, number>();
  for (const name of ["a", "b", "a", "c", "d"]) {
    remember(map, { key: name, value: 1, sizeMax: 3 });
  }
  assert.deepEqual([...map.keys()], ["a", "c", "d"]);
});

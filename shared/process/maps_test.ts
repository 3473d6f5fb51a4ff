/** Maps and sets that forget. */
import assert from "node:assert/strict";
import { LiveMap, type LiveMember, LiveSet, remember } from "./maps.ts";

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

/** A member that tests tell by its name. */
class Named implements LiveMember {
  livePlace: number | undefined = undefined;

  constructor(readonly name: string) {}
}

Deno.test("a live set has each member once, wherever others are removed", () => {
  const [a, b, c] = [new Named("a"), new Named("b"), new Named("c")];
  const set = new LiveSet<Named>();
  const names = () => [...set].map(({ name }) => name).sort();
  for (const each of [a, b, c, b]) set.add(each);
  assert.deepEqual([set.size, names()], [3, ["a", "b", "c"]]);
  assert.equal(set.delete(a), true);
  assert.equal(set.delete(a), false);
  assert.deepEqual([set.size, names()], [2, ["b", "c"]]);
  // The last one took the place of the first, and is still found.
  assert.equal(set.delete(c), true);
  set.add(a);
  assert.deepEqual([set.size, names()], [2, ["a", "b"]]);
  set.clear();
  assert.deepEqual([set.size, names(), set.delete(b)], [0, [], false]);
});

Deno.test("remember() drops the entry that was set least recently", () => {
  const map = new Map<string, number>();
  for (const name of ["a", "b", "a", "c", "d"]) {
    remember(map, { key: name, value: 1, sizeMax: 3 });
  }
  assert.deepEqual([...map.keys()], ["a", "c", "d"]);
});

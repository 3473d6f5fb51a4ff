/** A map of one entry or more, beside a `Map`. */
import assert from "node:assert/strict";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import { NamedValues } from "./named_values.ts";

Deno.test("named values agree with a map in 5,000 changes at random", () => {
  const random = seededRandom(5);
  const values = new NamedValues<{ step: number }>();
  const map = new Map<string, { step: number }>();
  for (let step = 0; step < 5_000; step += 1) {
    const name = `${Math.floor(random() * 4)}`;
    if (map.has(name) || random() < 0.3) {
      values.delete(name);
      map.delete(name);
    } else {
      const value = { step };
      values.add(name, value);
      map.set(name, value);
    }
    for (const each of "0123") assert.equal(values.get(each), map.get(each));
    const all = new Map<string, { step: number }>();
    values.forEach((value, each) => all.set(each, value));
    assert.deepEqual([...all].sort(), [...map].sort());
  }
});

/** Overrides of operators, and the messages that carry them. */
import assert from "node:assert/strict";
import {
  decodeOverrides,
  encodeOverrides,
  type Override,
  Overrides,
  OVERRIDES_MAX,
  readOverrides,
} from "./overrides.ts";

const DRAIN: Override = { what: "drain", model: "m", backend: "gpu" };
const WEIGHT: Override = { ...DRAIN, what: "weight", weight: 7 };
const DISABLE: Override = { what: "disable", model: "n" };

Deno.test("overrides hold for their model and backend until they are gone", () => {
  const overrides = new Overrides();
  overrides.take([DRAIN, WEIGHT, DISABLE]);
  assert.deepEqual(overrides.forBackend("m", "gpu"), {
    isDrained: true,
    weight: 7,
  });
  assert.equal(overrides.forBackend("n", "gpu"), undefined);
  assert.ok(overrides.disabled.has("n") && !overrides.disabled.has("m"));
  overrides.take([]);
  assert.equal(overrides.forBackend("m", "gpu"), undefined);
  assert.equal(overrides.disabled.size, 0);
});

Deno.test("a message carries the most overrides that there may be, without who made them", () => {
  const noted = { ...DRAIN, by: "op@example.org", reason: "x" };
  const all = Array.from({ length: OVERRIDES_MAX }, (_, n) => ({
    ...noted,
    model: `${"m".repeat(250)}${n}`,
  }));
  const message = encodeOverrides(all);
  assert.ok(message.length < 512 * 1024);
  assert.ok(!new TextDecoder().decode(message).includes("op@example.org"));
  assert.equal(decodeOverrides(message)?.length, OVERRIDES_MAX);
});

for (
  const { name, text } of [
    { name: "no JSON", text: "{" },
    { name: "another version", text: '{"version":2,"overrides":[]}' },
    {
      name: "a weight of 0",
      text: JSON.stringify({
        version: 1,
        overrides: [{ ...WEIGHT, weight: 0 }],
      }),
    },
  ]
) {
  Deno.test(`a message with ${name} changes nothing`, () => {
    assert.equal(decodeOverrides(new TextEncoder().encode(text)), null);
  });
}

Deno.test("what cannot be read in Redis is left out", () => {
  const values = [JSON.stringify(DRAIN), "{", '{"what":"newer"}'];
  assert.deepEqual(readOverrides(values), [DRAIN]);
});

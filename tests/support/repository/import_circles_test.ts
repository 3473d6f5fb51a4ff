/** Circles among imports. */
import assert from "node:assert/strict";
import { circlesOf } from "./import_circles.ts";

const importsOf = (table: Record<string, string>) =>
  new Map(
    Object.entries(table).map(([from, to]) => [from, new Set(to.split(" "))]),
  );

Deno.test("circlesOf() finds each circle once, however long, and nothing else", () => {
  const without = { a: "b c", b: "c", c: "d" };
  assert.deepEqual(circlesOf(importsOf(without)), []);
  const pair = { ...without, d: "b" };
  assert.deepEqual(circlesOf(importsOf(pair)), [
    "b -> c -> d -> b",
  ]);
  const two = { a: "b", b: "a c", c: "d", d: "c" };
  assert.deepEqual(circlesOf(importsOf(two)), ["a -> b -> a", "c -> d -> c"]);
});

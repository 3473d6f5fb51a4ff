import assert from "node:assert/strict";
import { describeResults } from "./tool_result.ts";

const CASES: [content: string, said: string][] = [
  ['{"temp":21,"sky":"clear"}', "Here is what f found: temp: 21, sky: clear."],
  ["Sunny, 21 degrees", "Here is what f found: Sunny, 21 degrees."],
  ["Done!", "Here is what f found: Done!"],
  ["42", "Here is what f found: 42."],
  ["[1,2,3]", "Here is what f found: 1, 2, 3."],
  ['{"a":{"b":[1,{"c":{"d":1}}]}}', "Here is what f found: a: b: 1, and more."],
  ["null", "Here is what f found: null."],
  ["", "f gave no result."],
  ["{}", "f gave no result."],
  ["{broken", "Here is what f found: {broken."],
];

for (const [content, said] of CASES) {
  Deno.test(`describeResults() says ${content || "nothing"} in words`, () => {
    assert.equal(describeResults([{ name: "f", content }]), said);
  });
}

Deno.test("describeResults() joins several, and shortens long ones", () => {
  const said = describeResults([
    { name: "a", content: "1" },
    { name: "b", content: "🙂".repeat(100_000) },
  ]);
  assert.match(
    said,
    /^Here is what a found: 1\. Here is what b found: 🙂+…\.$/u,
  );
  assert.ok(said.length < 1000);
});

/** How many tokens a forwarded body may cost. */
import assert from "node:assert/strict";
import { bodyTokens } from "./size.ts";
import { inputsIn } from "./vectors.ts";

Deno.test("bodyTokens() counts bytes of UTF-8, and each medium as an image", () => {
  const image = "iVBORw0KGgo".repeat(1_000);
  const prose = "It is said that ".repeat(1_000);
  const cases = [
    { text: '{"a":"b"}', tokens: 3 },
    { text: '{"a":"ééé"}', tokens: 4 },
    { text: JSON.stringify({ a: prose }), tokens: 4_002 },
    { text: JSON.stringify({ a: image }), tokens: 1_002 },
    {
      text: JSON.stringify({ a: `data:image/png;base64,${image}` }),
      tokens: 1_002,
    },
    { text: JSON.stringify({ a: [image, image] }), tokens: 2_003 },
  ];
  for (const { text, tokens } of cases) {
    assert.equal(bodyTokens(text), tokens, text.slice(0, 50));
  }
});

Deno.test("inputsIn() counts the vectors that must come, and their tokens", () => {
  const cases = [
    { input: "12345678", inputs: { count: 1, tokens: 2 } },
    { input: ["1234", "1234", ""], inputs: { count: 3, tokens: 2 } },
    { input: [1, 2, 3], inputs: { count: 1, tokens: 3 } },
    { input: [[1, 2, 3], [4]], inputs: { count: 2, tokens: 4 } },
    { input: [{ text: "a" }], inputs: { count: 1, tokens: 3 } },
    { input: [], inputs: { count: null, tokens: 0 } },
    { input: { image: "x" }, inputs: { count: null, tokens: 4 } },
  ];
  for (const { input, inputs } of cases) {
    assert.deepEqual(inputsIn(input), inputs, JSON.stringify(input));
  }
});

/** The cost in the usage of an answer: the rest of the answer stays as it is. */
import assert from "node:assert/strict";
import { withCost } from "./usage_cost.ts";

const answerWith = (text: string, nanos: number | null) =>
  new TextDecoder().decode(
    withCost(new TextEncoder().encode(text), () => nanos),
  );

const USAGE = '"prompt_tokens":3,"completion_tokens":4,"total_tokens":7';
const CHUNK = '{"choices":[{"delta":{"content":"ä \\"usage\\":{"}}]}\n';
const WHOLE = `{"id":"é","n":1.0,"usage":{${USAGE}},"x":12345678901234567890}`;

Deno.test("withCost() writes the cost into each usage, and nothing else", () => {
  const cases: readonly (readonly [text: string, expected: string])[] = [
    [WHOLE, WHOLE.replace(":7}", ':7,"cost":0.000000012}')],
    [
      `${CHUNK}{"choices":[],"usage":{${USAGE}}}\n`,
      `${CHUNK}{"choices":[],"usage":{${USAGE},"cost":0.000000012}}\n`,
    ],
    [
      `{"usage":{"cost":0.5,${USAGE}}}`,
      `{"usage":{"cost":0.000000012,${USAGE}}}`,
    ],
    [CHUNK, CHUNK],
    ['{"usage":null}\n', '{"usage":null}\n'],
    [
      `{"metadata":{"usage":{${USAGE}}}}`,
      `{"metadata":{"usage":{${USAGE}}}}`,
    ],
  ];
  for (const [text, expected] of cases) {
    assert.equal(answerWith(text, 12), expected);
  }
});

Deno.test("withCost() changes nothing where there is no price or no count", () => {
  assert.equal(answerWith(WHOLE, null), WHOLE);
  const uncounted = '{"usage":{"seconds":3}}';
  assert.equal(answerWith(uncounted, 12), uncounted);
});

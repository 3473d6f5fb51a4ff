import assert from "node:assert/strict";
import {
  type Controls,
  parseControlPhrases,
  PHRASE_EXAMPLES,
  stripControlPhrases,
} from "./control_phrases.ts";

const CASES: [message: string, controls: Controls, unknown?: string[]][] = [
  ["hello", {}],
  ["[simulator: 200 tokens]", { exactTokens: 200 }],
  ["[simulator: 1 token]", { exactTokens: 1 }],
  ["[simulator: 0 tokens]", { exactTokens: 0 }],
  ["say [Simulator:  200   TOKENS ] now", { exactTokens: 200 }],
  ["[simulator:200 tokens]", { exactTokens: 200 }],
  ["[simulator: error 500]", { errorStatus: 500 }],
  ["[simulator: error 429]", { errorStatus: 429 }],
  ["[simulator: fail after 5 tokens]", { failAfterTokens: 5 }],
  ["[simulator: stall after 0 tokens]", { stallAfterTokens: 0 }],
  ["[simulator: first token 2000 ms]", { firstTokenMs: 2000 }],
  ["[simulator: 50 tokens per second]", { tokensPerSecond: 50 }],
  ["[simulator: 12.5 tokens per second]", { tokensPerSecond: 12.5 }],
  ["[simulator: jitter 20 percent]", { jitter: 0.2 }],
  ["[simulator: jitter 100 percent]", { jitter: 1 }],
  ["[simulator: usage missing]", { isUsageMissing: true }],
  [
    "[simulator: first token 50 ms, 20 tokens per second] hi [simulator: 9 tokens]",
    { firstTokenMs: 50, tokensPerSecond: 20, exactTokens: 9 },
  ],
  [
    "[simulator: 5 tokens] [simulator: 6 tokens]",
    { exactTokens: 6 },
  ],
  ["[simulator: eror 500]", {}, ["eror 500"]],
  ["[simulator: error 200]", {}, ["error 200"]],
  ["[simulator: 12345678 tokens]", {}, ["12345678 tokens"]],
  ["[simulator: -5 tokens]", {}, ["-5 tokens"]],
  ["[simulator: 1.5 tokens]", {}, ["1.5 tokens"]],
  ["[simulator: jitter 101 percent]", {}, ["jitter 101 percent"]],
  ["[simulator: ]", {}, [""]],
  ["[simulator: 5 tokens, nonsense]", { exactTokens: 5 }, ["nonsense"]],
  ["[simulator 5 tokens]", {}],
  ["[simulator: 5\ntokens]", {}],
  ["simulator: 5 tokens", {}],
];

for (const [message, controls, unknown = []] of CASES) {
  Deno.test(`parseControlPhrases() reads ${JSON.stringify(message)}`, () => {
    assert.deepEqual(parseControlPhrases(message), { controls, unknown });
  });
}

for (const example of PHRASE_EXAMPLES) {
  Deno.test(`the phrase of the error message is one: ${example}`, () => {
    const { controls, unknown } = parseControlPhrases(
      `[simulator: ${example}]`,
    );
    assert.deepEqual(unknown, []);
    assert.equal(Object.keys(controls).length, 1);
  });
}

Deno.test("stripControlPhrases() leaves what the user really said", () => {
  assert.equal(
    stripControlPhrases("a[simulator: 5 tokens]b [x] [SIMULATOR: y]c"),
    "ab [x] c",
  );
});

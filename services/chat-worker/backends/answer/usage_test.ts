// Token counts as model servers state them.
import assert from "node:assert/strict";
import type { Usage } from "@gateway/shared/openai/completion";
import { addsUp, responseUsage } from "@gateway/shared/forward/usage";
import { usageIn } from "./usage.ts";

function usage(prompt: number, completion: number, more: object = {}): Usage {
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...more,
  };
}

const reasoned = (tokens: number) => (
  { completion_tokens_details: { reasoning_tokens: tokens } }
);
const cached = (tokens: number) => (
  { prompt_tokens_details: { cached_tokens: tokens } }
);
const DETAILS = { ...cached(5), ...reasoned(7) };

const usages: { name: string; value: unknown; expected: Usage | null }[] = [
  { name: "three counts", value: usage(1, 2), expected: usage(1, 2) },
  {
    name: "a larger total as output",
    value: { ...usage(1, 2), total_tokens: 9 },
    expected: usage(1, 8),
  },
  {
    name: "a total that is too small",
    value: { ...usage(1, 2), total_tokens: 2 },
    expected: usage(1, 2),
  },
  {
    name: "details",
    value: usage(5, 7, DETAILS),
    expected: usage(5, 7, DETAILS),
  },
  {
    name: "details beside what they are of",
    value: usage(4, 6, DETAILS),
    expected: usage(5, 7, DETAILS),
  },
  {
    name: "writes to a cache, alone",
    value: usage(4, 6, { prompt_tokens_details: { cache_write_tokens: 3 } }),
    expected: usage(4, 6, {
      prompt_tokens_details: { cached_tokens: 0, cache_write_tokens: 3 },
    }),
  },
  {
    name: "reasoning beside the completion",
    value: usage(5, 7, { total_tokens: 32, ...reasoned(20) }),
    expected: usage(5, 27, reasoned(20)),
  },
  {
    name: "details beside the counts, as SGLang has them",
    value: usage(5, 7, { prompt_tokens_details: null, reasoning_tokens: 3 }),
    expected: usage(5, 7, reasoned(3)),
  },
  {
    name: "details beside the counts, as DeepSeek has them",
    value: usage(5, 7, {
      prompt_cache_hit_tokens: 4,
      prompt_cache_miss_tokens: 1,
    }),
    expected: usage(5, 7, cached(4)),
  },
  { name: "null", value: null, expected: null },
  { name: "a negative count", value: usage(1, -1), expected: null },
  { name: "a fraction", value: usage(1.5, 1), expected: null },
  { name: "a count beyond 32 bits", value: usage(1, 2 ** 32), expected: null },
];

for (const { name, value, expected } of usages) {
  Deno.test(`API10: responseUsage() reads ${name}`, () =>
    assert.deepEqual(responseUsage(value), expected));
}

Deno.test("addsUp() tells counts of which the larger are charged", () => {
  const right = [usage(5, 7, DETAILS), usage(1, 2), null, { prompt_tokens: 1 }];
  for (const value of right) assert.ok(addsUp(value), JSON.stringify(value));
  const wrong = [
    usage(4, 6, DETAILS),
    { ...usage(1, 2), total_tokens: 9 },
    { ...usage(1, 2), total_tokens: 2 },
  ];
  for (const value of wrong) assert.ok(!addsUp(value), JSON.stringify(value));
});

const BOUNDS = { promptTokensMax: 1_000, completionTokensMax: 50 };
const NESTED: readonly { name: string; chunk: object; sum: string | null }[] = [
  { name: "at the top", chunk: { usage: usage(3, 2) }, sum: "3+2" },
  {
    name: "in a choice",
    chunk: { choices: [{ usage: usage(3, 2) }] },
    sum: "3+2",
  },
  {
    name: "in timings",
    chunk: { timings: { prompt_n: 1, cache_n: 2, predicted_n: 2 } },
    sum: "3+2",
  },
  { name: "on the bound", chunk: { usage: usage(1_000, 50) }, sum: "1000+50" },
  { name: "above the bound", chunk: { usage: usage(3, 51) }, sum: null },
  { name: "of 32 bits", chunk: { usage: usage(3, 2 ** 32 - 1) }, sum: null },
  {
    name: "for too long a prompt",
    chunk: { usage: usage(1_001, 2) },
    sum: null,
  },
  { name: "nowhere", chunk: { choices: [] }, sum: null },
];

Deno.test("usageIn() finds the counts wherever they stand, if they can be", () => {
  for (const { name, chunk, sum } of NESTED) {
    const found = usageIn({ ...chunk }, BOUNDS)?.counts ?? null;
    const counts = found && `${found.prompt_tokens}+${found.completion_tokens}`;
    assert.equal(counts, sum, name);
  }
});

Deno.test("usageIn() shows the server's own members", () => {
  const stated = {
    ...usage(5, 7),
    cost: 0.5,
    prompt_tokens_details: { cached_tokens: 5, audio_tokens: 0 },
  };
  assert.deepEqual(usageIn({ usage: stated }, BOUNDS)?.members, stated);
});

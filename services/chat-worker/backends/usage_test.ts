/** The usage objects that real servers send, and what is read of each. */
import assert from "node:assert/strict";
import type { Usage } from "@gateway/shared/openai/completion";
import { parseUsage } from "./usage.ts";

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

const usages: {
  name: string;
  value: unknown;
  expected: Usage | null;
}[] = [
  { name: "three counts", value: usage(1, 2), expected: usage(1, 2) },
  {
    name: "a wrong total",
    value: { ...usage(1, 2), total_tokens: 9 },
    expected: usage(1, 2),
  },
  {
    name: "details",
    value: usage(5, 7, DETAILS),
    expected: usage(5, 7, DETAILS),
  },
  {
    name: "impossible details",
    value: usage(4, 6, DETAILS),
    expected: usage(4, 6),
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
  Deno.test(`API10: parseUsage() reads ${name}`, () =>
    assert.deepEqual(parseUsage(value), expected));
}

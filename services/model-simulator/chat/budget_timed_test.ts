/**
 * Guarantee: no request keeps the simulator from its other answers for more than 50 ms.
 */
import { ApiError } from "@gateway/shared/openai/error";
import assert from "node:assert/strict";
import process from "node:process";
import { chatCompletion } from "./completion.ts";
import { batchesOf, SeenRequest } from "../serving/answer.ts";
import { MODEL_IDS } from "../serving/fields.ts";
import { PromptCache } from "../serving/prompt_cache.ts";

const BUDGET_MS = 50;
const model = MODEL_IDS.chat;
const many = <T>(count: number, make: (index: number) => T) =>
  Array.from({ length: count }, (_, index) => make(index));
const answer = (schema: object) => {
  const json_schema = { name: "x", schema };
  return { response_format: { type: "json_schema", json_schema } };
};
const tool = (parameters: object) => ({
  tools: [{ type: "function", function: { name: "f", parameters } }],
  tool_choice: "required",
});

/**
 * Schemas that cost more than they look, for the answer and for the arguments of a
 * tool.
 */
const SCHEMAS: Record<string, object> = {
  "wide recursion": {
    type: "object",
    properties: Object.fromEntries(
      many(4_000, (i) => [`p${i}`, { $ref: "#" }]),
    ),
  },
  "doubling": { type: "array", minItems: 2, items: { $ref: "#" } },
  "many items": { type: "array", minItems: 1e9, items: {} },
  "long texts": { type: "string", minLength: 1e9 },
  "large constants": { minItems: 1e4, items: { const: "x".repeat(50_000) } },
  "alternatives without a value": { anyOf: many(40, () => ({ $ref: "#" })) },
  "a chain of references": {
    $ref: "#/$defs/d0",
    $defs: Object.fromEntries(
      many(4_000, (i) => [`d${i}`, { $ref: `#/$defs/d${i + 1}` }]),
    ),
  },
};
const LARGE = {
  properties: { a: { minItems: 200, items: { type: "string" } } },
  required: ["a"],
};
/** As wide as strict mode allows. */
const WIDE = {
  type: "object",
  properties: Object.fromEntries(many(1_999, (i) => [`p${i}`, {}])),
  required: many(1_999, (i) => `p${i}`),
  additionalProperties: false,
};
const BODIES: Record<string, object> = {
  "128 tools": {
    prompt: many(128, (i) => `tool${i}`).join(" "),
    tools: many(128, (i) => ({
      type: "function",
      function: { name: `tool${i}`, parameters: LARGE },
    })),
  },
  "128 strict tools": {
    tools: many(128, (i) => ({
      type: "function",
      function: { name: `tool${i}`, strict: true, parameters: WIDE },
    })),
  },
  "8 choices": { n: 8, ...tool(LARGE) },
  "stop texts of one letter": {
    stop: many(16, (i) => `${"a".repeat(999)}${i % 10}`),
  },
  "blanks": { prompt: " ".repeat(300_000) },
  "brackets": { prompt: "[simulator:".repeat(20_000) },
  "phrases": { prompt: "[simulator: 1 token]".repeat(20_000) },
  "combining marks": { prompt: "\u0301".repeat(300_000) },
};

Deno.test("no request costs more than its budget before and between tokens", async () => {
  const schemas = Object.entries(SCHEMAS).flatMap(([what, value]) => [
    [what, answer(value)] as const,
    [what, tool({ properties: { a: value }, required: ["a"] })] as const,
  ]);
  for (const [what, body] of [...schemas, ...Object.entries(BODIES)]) {
    const { prompt: content = "f".repeat(100), ...rest } = Object(body);
    const messages = [{ role: "user", content }];
    const text = JSON.stringify({ model, stream: true, messages, ...rest });
    let best = Infinity;
    for (let run = 0; run < 3; run++) {
      best = Math.min(best, await longestWork(text));
    }
    assert.ok(best < BUDGET_MS, `${what}: ${best} ms`);
  }
});

/**
 * The most work without a turn for others, in CPU time, which no neighbour stretches.
 */
async function longestWork(body: string): Promise<number> {
  let startedAt = process.cpuUsage();
  let longest = 0;
  const lap = () => {
    const { user, system } = process.cpuUsage(startedAt);
    longest = Math.max(longest, (user + system) / 1_000);
    startedAt = process.cpuUsage();
  };
  try {
    const planned = chatCompletion({ text: body }, new PromptCache());
    const request = new SeenRequest(new Request("http://simulator"), body);
    for await (const _ of batchesOf(planned, request)) lap();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
  lap();
  return longest;
}

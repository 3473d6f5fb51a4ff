/** Shared by the tests of requests. */
import type { ModelAbilities } from "./request.ts";

const base: ModelAbilities = {
  id: "neutral-3.7-plus",
  context_tokens: 131_072,
  output_tokens: 32_768,
  vision: false,
  pass_fields: ["top_k", "chat_template_kwargs"],
};

/** A text model, one with vision, one limited to a single choice, and one without any bounds. */
export const catalog: ReadonlyMap<string, ModelAbilities> = new Map([
  [base.id, base],
  ["seer", { ...base, id: "seer", vision: true }],
  ["single", { ...base, id: "single", choices: 1 }],
  ["plain", { id: "plain", vision: true, pass_fields: [] }],
]);

/** The smallest valid request. */
export const ping: { [name: string]: unknown } = {
  model: "neutral-3.7-plus",
  messages: [{ role: "user", content: "ping" }],
};

/** A tool that `tool_choice` may name. */
export const weatherTool = {
  type: "function",
  function: { name: "get_weather", parameters: { type: "object" } },
};

/** One call of {@link weatherTool} in a history. */
export function callOf(id: string): { [name: string]: unknown } {
  const call = { name: "get_weather", arguments: '{"city":"Rome"}' };
  return { id, type: "function", function: call };
}

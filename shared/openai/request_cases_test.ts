import assert from "node:assert/strict";
import { ApiError } from "./error.ts";
import { parseChatRequest } from "./request.ts";
import type { ModelAbilities } from "./request_rules.ts";

/** Fixtures that the tests of this folder share. Not part of the product. */

const base: ModelAbilities = {
  id: "neutral-3.7-plus",
  contextTokensMax: 131_072,
  outputTokensMax: 32_768,
  vision: false,
  passFields: ["top_k", "chat_template_kwargs"],
};

/** A text model, a model with eyes, one that gives one choice, and one whose backend decides everything. */
export const catalog: ReadonlyMap<string, ModelAbilities> = new Map([
  [base.id, base],
  ["seer", { ...base, id: "seer", vision: true }],
  ["single", { ...base, id: "single", choicesMax: 1 }],
  ["plain", {
    id: "plain",
    vision: true,
    passFields: [],
  }],
]);

/** The smallest good request. */
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
  return {
    id,
    type: "function",
    function: { name: "get_weather", arguments: '{"city":"Rome"}' },
  };
}

/** The error that `body` is refused with. Throws when it is accepted or something else is thrown. */
export function refusalOf(body: unknown): ApiError {
  try {
    parseChatRequest(body, catalog);
  } catch (error) {
    if (error instanceof ApiError) return error;
    throw error;
  }
  throw new Error("accepted");
}

/** One refused request: what is changed in {@link ping} and the answer. */
export type Refusal = [
  name: string,
  fields: { [name: string]: unknown },
  code: string,
  param: string | null,
  message: string | RegExp,
];

/** Registers one test for each row. */
export function testRefusals(rows: Refusal[]): void {
  for (const [name, fields, code, param, message] of rows) {
    Deno.test(`parseChatRequest() refuses ${name}`, () => {
      const error = refusalOf({ ...ping, ...fields });
      assert.equal(error.code, code, error.message);
      assert.equal(error.param, param);
      if (typeof message === "string") assert.equal(error.message, message);
      else assert.match(error.message, message);
      assert.equal(error.status, code === "model_not_found" ? 404 : 400);
      assert.ok(error.message.length < 400, "the message is short");
    });
  }
}

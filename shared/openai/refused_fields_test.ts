// What must not pass to a model server, and what may.
import assert from "node:assert/strict";
import { findRefusedField, REFUSED_FIELDS } from "./refused_fields.ts";

const ROWS: readonly {
  body: { [name: string]: unknown };
  maxTokens?: number;
  param: string | undefined;
}[] = [
  { body: { top_k: 5, structured_outputs: {}, user: "a" }, param: undefined },
  { body: { service_tier: "flex", seed: 1 }, param: undefined },
  { body: { best_of: 1, echo: false, priority: 0 }, param: undefined },
  { body: { best_of: null, cache_salt: null, lora: [] }, param: undefined },
  { body: { best_of: 2 }, param: "best_of" },
  { body: { echo: true }, param: "echo" },
  { body: { priority: -1 }, param: "priority" },
  { body: { prompt_logprobs: 0 }, param: "prompt_logprobs" },
  { body: { min_tokens: 10 }, maxTokens: 10, param: undefined },
  { body: { min_tokens: 11 }, maxTokens: 10, param: "min_tokens" },
  { body: { min_tokens: 1 }, param: "min_tokens" },
  { body: { min_tokens: 0 }, param: undefined },
  { body: { min_tokens: "9" }, maxTokens: 10, param: "min_tokens" },
  { body: { ignore_eos: true }, maxTokens: 10, param: undefined },
  { body: { ignore_eos: true }, param: "ignore_eos" },
  { body: { ignore_eos: false }, param: undefined },
  { body: { id_slot: -1 }, param: undefined },
  { body: { id_slot: 0 }, param: "id_slot" },
  { body: { bootstrap_host: "10.0.0.1" }, param: "bootstrap_host" },
  { body: { api_base: "http://10.0.0.1" }, param: "api_base" },
  { body: { seed: 1, cache_salt: "x", lora: [1] }, param: "cache_salt" },
  { body: { constructor: 1, toString: 2 }, param: undefined },
];

Deno.test("findRefusedField() names the first member that must not pass", () => {
  for (const { body, maxTokens, param } of ROWS) {
    const refused = findRefusedField(body, { maxTokens });
    assert.equal(refused?.param, param, JSON.stringify(body));
  }
});

Deno.test("a refusal says why the field must not pass", () => {
  const { message } = findRefusedField({ priority: 5 }, {
    maxTokens: undefined,
  }) ?? {};
  assert.equal(
    message,
    "Unsupported parameter: 'priority' is not allowed, because it changes " +
      "whose request the server runs first.",
  );
  assert.ok(REFUSED_FIELDS.every(({ reason }) => reason !== ""));
});

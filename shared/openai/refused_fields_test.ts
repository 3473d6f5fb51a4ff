// What must not pass to a model server, and what may.
import assert from "node:assert/strict";
import {
  findRefusedField,
  REFUSED_FIELDS,
  refusedMediaField,
} from "./refused_fields.ts";

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

const MEDIA_ROWS: readonly {
  name: string;
  value: unknown;
  isRefused: boolean;
}[] = [
  { name: "num_inference_steps", value: 50, isRefused: false },
  { name: "task_type", value: "Base", isRefused: false },
  { name: "best_of", value: "5", isRefused: false },
  { name: "num_outputs_per_prompt", value: 1, isRefused: false },
  { name: "num_outputs_per_prompt", value: "1", isRefused: false },
  { name: "num_outputs_per_prompt", value: "4", isRefused: true },
  { name: "batch_size", value: 2, isRefused: true },
  { name: "priority", value: "0", isRefused: false },
  { name: "priority", value: "-5", isRefused: true },
  { name: "lora", value: "{}", isRefused: false },
  { name: "lora", value: { name: "a" }, isRefused: true },
  { name: "file_id", value: "file-1", isRefused: true },
  { name: "output_path", value: "/srv", isRefused: true },
  { name: "audio_path", value: "a.wav", isRefused: true },
  { name: "path", value: "", isRefused: false },
  { name: "backend", value: "other", isRefused: true },
  { name: "toString", value: 1, isRefused: false },
];

Deno.test("refusedMediaField() refuses what changes the cost, the order or the owner", () => {
  for (const { name, value, isRefused } of MEDIA_ROWS) {
    const refused = refusedMediaField(name, value);
    assert.equal(refused !== null, isRefused, `${name}: ${value}`);
  }
});

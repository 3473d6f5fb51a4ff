/** Checks of requests and answers against the API's description. */
import assert from "node:assert/strict";
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import { Ajv2020 } from "ajv/dist/2020.js";

/** Checks values with the schemas of the API's description, as its users would. */
const ajv = new Ajv2020({ allowUnionTypes: true });
const text = JSON.stringify(document.components.schemas);
const $defs = JSON.parse(text.replaceAll("#/components/schemas/", "#/$defs/"));
ajv.addSchema({ $id: "api", $defs });

/**
 * Says whether a value is valid by a schema of the description, or by the one with
 * these `$ref`s.
 */
export function validatorOf(name: string): (value: unknown) => boolean {
  const check = ajv.getSchema(`api#/$defs/${name}`) ?? assert.fail(name);
  return (value) => check(value) === true;
}

/** A lone surrogate in JSON text. */
const SURROGATE = /\\ud[89a-f]/;
const isUnclean = (body: unknown) =>
  SURROGATE.test(
    JSON.stringify(body, (name, value) =>
      Math.abs(value) === Infinity || !name.isWellFormed() ? "\ud800" : value),
  );

/**
 * Tells by which rule of the description a request is refused, though the schema allows
 * it.
 */
const RULES: readonly {
  rule: string;
  code: RegExp;
  param: RegExp;
  /** Any body if left out. */
  isBroken?: (body: unknown) => boolean;
}[] = [
  { rule: "Values", code: /^invalid_value$/, param: /^/, isBroken: isUnclean },
  { rule: "History", code: /^invalid_value$/, param: /^messages\[\d+\]$/ },
  {
    rule: "Choice",
    code: /^invalid_value$/,
    param: /^tool_choice(\.function\.name)?$/,
  },
  {
    rule: "Needs",
    code: /^invalid_value$/,
    param: /^(top_logprobs|stream_options)$/,
  },
  {
    rule: "Model",
    code: /^integer_above_max_value$/,
    param: /^(max_(completion_)?tokens|n)$/,
  },
  {
    rule: "Model",
    code: /^(unsupported_value|model_not_found|context_.*)$/,
    param: /^/,
  },
  { rule: "Unsupported", code: /^unsupported_parameter$/, param: /./ },
  { rule: "Size", code: /^(invalid_json|request_too_large)$/, param: /^/ },
];

/** The rules that the description of chat completions lists, in its order. */
export const RULE_NAMES: readonly string[] = [
  ...document.paths["/v1/chat/completions"].post.description
    .matchAll(/^- \*\*(\w+)\*\*/gm),
].map(([, name = ""]) => name);

const takesRequest = validatorOf("ChatCompletionRequest");

/**
 * The rule that allows the refusal of a request; null if the schema refuses it, too.
 */
export function ruleBehind(
  body: unknown,
  { code, param }: { code: string | null; param: string | null },
) {
  if (!takesRequest(body)) return null;
  const { rule } =
    RULES.find((each) =>
      each.code.test(code ?? "") && each.param.test(param ?? "") &&
      each.isBroken?.(body) !== false
    ) ?? {};
  const what = JSON.stringify(body).slice(0, 300);
  assert.ok(rule, `the description allows ${what}, refused: ${code} ${param}`);
  return rule;
}

/** Fails if the description refuses a request that was accepted. */
export function assertDescribed(body: unknown): void {
  const what = JSON.stringify(body).slice(0, 300);
  assert.ok(takesRequest(body), `the description refuses ${what}`);
}

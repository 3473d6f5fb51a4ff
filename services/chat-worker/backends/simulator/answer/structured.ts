import { ApiError } from "@gateway/shared/openai/error";
import type { ResponseFormat } from "@gateway/shared/openai/chat";
import { WorkBudget } from "../schema/budget.ts";
import type { GeneratorContext } from "../schema/context.ts";
import { generateValue } from "../schema/generate.ts";
import { isObject, type Json } from "../schema/json.ts";
import type { PlannedCall } from "./tool_choice.ts";

/** Work on one value: about 50 ms at most, and 1 ms for the schemas people write. */
const BUDGET_STEPS = 250_000;
/** Text searched for a schema or for names of keys. */
const SEARCHED_CHARS_MAX = 50_000;
const KEYS_MAX = 32;

const SCHEMA_MARK = /json[\s_-]*schema/i;
const KEYS =
  /\b(?:keys?|fields?|propert(?:y|ies))\b[:\s]+((?:(?:and|or|named|called|are)\s+|["'`]?\w{1,40}["'`]?(?:\s*,\s*|\s+(?=and\b)|\s*))+)/i;
const KEY_FILLERS = new Set([
  "and",
  "or",
  "named",
  "called",
  "are",
  "with",
  "the",
]);

/** What the values of one answer are made with; see {@link GeneratorContext} for each. */
export type ValueSource = Pick<
  GeneratorContext,
  "random" | "hints" | "writeProse"
>;

/** The arguments of a call as JSON text, valid against the tool's parameters where that can be. */
export function writeArguments(call: PlannedCall, source: ValueSource): string {
  const schema = call.tool.function.parameters ?? { type: "object" };
  const value = makeValue(schema, source, "hinted");
  // A model that cannot make sense of the parameters calls without any, and so does this one.
  return JSON.stringify(value ?? {});
}

/**
 * The JSON text of a response format. For `json_object` the shape comes from a
 * schema or from names of keys in the messages, if there are any. Throws
 * `invalid_value` for a schema that nothing valid could be made for.
 */
export function writeStructured(
  format: ResponseFormat,
  messages: string,
  source: ValueSource,
): string {
  if (format.type === "json_schema") {
    const { name, schema } = format.json_schema;
    const value = makeValue(schema ?? { type: "object" }, source, "all");
    if (value === undefined) throw unusableSchema(name);
    return JSON.stringify(value);
  }
  const schema = schemaIn(messages) ?? schemaOfKeys(messages);
  const value = makeValue(schema, source, "all");
  return JSON.stringify(isObject(value) ? value : {});
}

function makeValue(
  schema: unknown,
  source: ValueSource,
  optionalProperties: "all" | "hinted",
): Json | undefined {
  const budget = new WorkBudget(BUDGET_STEPS);
  const place = { name: "", depth: 0 };
  const context = { ...source, root: schema, budget, optionalProperties };
  return generateValue(schema, place, context);
}

function unusableSchema(name: string): ApiError {
  return new ApiError(
    "invalid_value",
    `Invalid schema for response_format '${name}': no value could be made that is valid against it.`,
    { param: "response_format.json_schema.schema" },
  );
}

/** A JSON Schema that stands in the messages, as some SDKs put it when a model has only `json_object`. */
function schemaIn(messages: string): unknown {
  const text = messages.slice(0, SEARCHED_CHARS_MAX);
  const mark = SCHEMA_MARK.exec(text);
  if (!mark) return undefined;
  const start = text.indexOf("{", mark.index);
  const end = start < 0 ? -1 : closingBrace(text, start);
  if (end < 0) return undefined;
  try {
    const schema: unknown = JSON.parse(text.slice(start, end + 1));
    const isSchema = isObject(schema) &&
      ("properties" in schema || "type" in schema || "$ref" in schema);
    return isSchema ? schema : undefined;
  } catch {
    // Braces of something else.
    return undefined;
  }
}

/** Where the object that opens at `start` closes; -1 if it does not. Braces in strings do not count. */
function closingBrace(text: string, start: number): number {
  let depth = 0;
  let isInString = false;
  for (let at = start; at < text.length; at++) {
    const character = text[at];
    if (isInString) {
      if (character === "\\") at += 1;
      else if (character === '"') isInString = false;
    } else if (character === '"') isInString = true;
    else if (character === "{") depth += 1;
    else if (character === "}" && --depth === 0) return at;
  }
  return -1;
}

function schemaOfKeys(messages: string): unknown {
  const found = KEYS.exec(messages.slice(0, SEARCHED_CHARS_MAX));
  const keys = (found?.[1]?.match(/\w+/g) ?? [])
    .filter((word) => !KEY_FILLERS.has(word.toLowerCase()))
    .slice(0, KEYS_MAX);
  const names = keys.length > 0 ? [...new Set(keys)] : ["answer"];
  const properties = Object.fromEntries(
    names.map((name) => [name, { type: "string" }]),
  );
  return { type: "object", properties, required: names };
}

import type { WorkBudget } from "./budget.ts";
import { isObject, jsonEqual } from "./json.ts";
import { resolveReference } from "./reference.ts";

/** References within references, and alternatives within alternatives. */
const DEPTH_MAX = 64;
/** What putting one part in costs, in steps of the budget. */
const FLATTEN_STEPS = 10;

/** A schema with its references and `allOf` worked in. */
export interface FlatSchema {
  /** The keywords that hold, one value each. */
  keywords: { [keyword: string]: unknown };
  /** Of each of these lists (`anyOf`, `oneOf`, `then` and `else`) one schema is to be added. */
  choices: readonly (readonly unknown[])[];
}

/** A schema that nothing fits. */
const NOTHING: FlatSchema = { keywords: { enum: [] }, choices: [] };

/**
 * Puts together what a schema demands, so that a value can be made from it.
 * Where two parts cannot be put together exactly, the result is near: the caller
 * checks the value against the schema itself.
 */
export function flattenSchema(
  schema: unknown,
  root: unknown,
  budget: WorkBudget,
  depth = 0,
): FlatSchema {
  if (schema === false || depth > DEPTH_MAX) return NOTHING;
  if (!budget.spend(FLATTEN_STEPS)) return NOTHING;
  if (!isObject(schema)) return { keywords: {}, choices: [] };
  const {
    $ref,
    allOf,
    anyOf,
    oneOf,
    if: condition,
    then,
    else: other,
    ...own
  } = schema;
  const parts: unknown[] = Array.isArray(allOf) ? [...allOf] : [];
  if (typeof $ref === "string") {
    parts.unshift(resolveReference(root, $ref) ?? false);
  }
  const choices: unknown[][] = [];
  if (Array.isArray(anyOf)) choices.push(anyOf);
  if (Array.isArray(oneOf)) choices.push(oneOf);
  if (condition !== undefined) {
    choices.push([{ allOf: [condition, then ?? true] }, other ?? true]);
  }
  return parts.reduce<FlatSchema>(
    (flat, part) => combine(flat, flattenSchema(part, root, budget, depth + 1)),
    { keywords: own, choices },
  );
}

/** What holds when both hold. */
export function combine(one: FlatSchema, other: FlatSchema): FlatSchema {
  const keywords = new Map(Object.entries(one.keywords));
  for (const [keyword, value] of Object.entries(other.keywords)) {
    keywords.set(
      keyword,
      keywords.has(keyword)
        ? combineKeyword(keyword, keywords.get(keyword), value)
        : value,
    );
  }
  return {
    keywords: Object.fromEntries(keywords),
    choices: [...one.choices, ...other.choices],
  };
}

function combineKeyword(
  keyword: string,
  one: unknown,
  other: unknown,
): unknown {
  switch (keyword) {
    case "type":
      return combineTypes(listOf(one), listOf(other));
    case "enum":
      return listOf(one).filter((item) =>
        listOf(other).some((same) => jsonEqual(item, same))
      );
    case "required":
      return [...new Set([...listOf(one), ...listOf(other)])];
    case "properties":
      return combineProperties(one, other);
    case "items":
    case "additionalProperties":
    case "propertyNames":
      return { allOf: [one, other] };
    case "minimum":
    case "exclusiveMinimum":
    case "minLength":
    case "minItems":
    case "minProperties":
      return Math.max(Number(one), Number(other));
    case "maximum":
    case "exclusiveMaximum":
    case "maxLength":
    case "maxItems":
    case "maxProperties":
      return Math.min(Number(one), Number(other));
    default:
      return one;
  }
}

function combineTypes(one: unknown[], other: unknown[]): unknown[] {
  const both = one.filter((type) => other.includes(type));
  const isWhole = (one.includes("integer") && other.includes("number")) ||
    (one.includes("number") && other.includes("integer"));
  return isWhole ? [...new Set([...both, "integer"])] : both;
}

function combineProperties(one: unknown, other: unknown): unknown {
  if (!isObject(one) || !isObject(other)) return isObject(one) ? one : other;
  const properties = new Map(Object.entries(one));
  for (const [name, schema] of Object.entries(other)) {
    properties.set(
      name,
      properties.has(name) ? { allOf: [properties.get(name), schema] } : schema,
    );
  }
  return Object.fromEntries(properties);
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [value];
}

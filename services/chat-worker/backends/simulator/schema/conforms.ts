import type { WorkBudget } from "./budget.ts";
import { formatOf } from "./formats.ts";
import {
  codePointLength,
  isObject,
  type Json,
  jsonEqual,
  type JsonObject,
  member,
  typeNameOf,
} from "./json.ts";
import { parsePattern } from "./pattern.ts";
import { matchesPattern } from "./pattern_match.ts";
import { resolveReference } from "./reference.ts";

/** Schemas within schemas. Deeper, the call stack would be at risk. */
const DEPTH_MAX = 200;

/**
 * Whether a value is valid against a JSON Schema (2020-12, and `items` as a list
 * of older drafts). `root` is the document that references point into. Keywords
 * it does not know, and malformed ones, hold for every value, as the standard has
 * it; a pattern that cannot be checked does too. With the budget spent: false.
 */
export function conforms(
  value: Json,
  schema: unknown,
  root: unknown,
  budget: WorkBudget,
): boolean {
  const check: Check = { root, budget, depth: 0 };
  return isValid(value, schema, check);
}

interface Check {
  root: unknown;
  budget: WorkBudget;
  depth: number;
}

type Schema = { [keyword: string]: unknown };
type Rule = (
  value: Json,
  argument: unknown,
  check: Check,
  schema: Schema,
) => boolean;

function isValid(value: Json, schema: unknown, check: Check): boolean {
  if (typeof schema === "boolean") return schema;
  if (!isObject(schema)) return true;
  if (!check.budget.spend(1) || check.depth >= DEPTH_MAX) return false;
  check.depth += 1;
  const holds = Object.keys(schema).every((keyword) => {
    const rule = RULES.get(keyword);
    return rule === undefined || rule(value, schema[keyword], check, schema);
  });
  check.depth -= 1;
  return holds;
}

const RULES: ReadonlyMap<string, Rule> = new Map<string, Rule>([
  ["type", (value, types) => hasType(value, types)],
  ["const", (value, constant) => jsonEqual(value, constant)],
  [
    "enum",
    (value, members) =>
      !Array.isArray(members) || members.some((one) => jsonEqual(value, one)),
  ],
  ["$ref", (value, reference, check) =>
    typeof reference !== "string" ||
    isValid(value, resolveReference(check.root, reference), check)],

  [
    "allOf",
    (value, schemas, check) =>
      countValid(value, schemas, check) === lengthOf(schemas),
  ],
  [
    "anyOf",
    (value, schemas, check) =>
      !Array.isArray(schemas) || countValid(value, schemas, check) > 0,
  ],
  [
    "oneOf",
    (value, schemas, check) =>
      !Array.isArray(schemas) || countValid(value, schemas, check) === 1,
  ],
  ["not", (value, schema, check) => !isValid(value, schema, check)],
  ["if", (value, condition, check, schema) => {
    const branch = isValid(value, condition, check) ? "then" : "else";
    return isValid(value, schema[branch] ?? true, check);
  }],

  ["minimum", numberRule((value, bound) => value >= bound)],
  ["maximum", numberRule((value, bound) => value <= bound)],
  ["exclusiveMinimum", numberRule((value, bound) => value > bound)],
  ["exclusiveMaximum", numberRule((value, bound) => value < bound)],
  ["multipleOf", numberRule(isMultiple)],

  ["minLength", sizeRule(textSize, (size, bound) => size >= bound)],
  ["maxLength", sizeRule(textSize, (size, bound) => size <= bound)],
  [
    "pattern",
    (value, pattern, check) =>
      typeof value !== "string" || fitsPattern(value, pattern, check),
  ],
  [
    "format",
    (value, name) =>
      typeof value !== "string" || formatOf(name)?.matches(value) !== false,
  ],

  ["minItems", sizeRule(arraySize, (size, bound) => size >= bound)],
  ["maxItems", sizeRule(arraySize, (size, bound) => size <= bound)],
  [
    "uniqueItems",
    (value, isWanted) =>
      isWanted !== true || !Array.isArray(value) || areUnique(value),
  ],
  [
    "prefixItems",
    (value, schemas, check) =>
      !Array.isArray(value) || !Array.isArray(schemas) ||
      value.slice(0, schemas.length).every((item, at) =>
        isValid(item, schemas[at], check)
      ),
  ],
  ["items", itemsHold],
  [
    "contains",
    (value, schema, check) =>
      !Array.isArray(value) ||
      value.some((item) => isValid(item, schema, check)),
  ],

  ["minProperties", sizeRule(objectSize, (size, bound) => size >= bound)],
  ["maxProperties", sizeRule(objectSize, (size, bound) => size <= bound)],
  [
    "required",
    (value, names) =>
      !isJsonObject(value) || !Array.isArray(names) ||
      names.every((name) => Object.hasOwn(value, name)),
  ],
  ["properties", propertiesHold],
  ["patternProperties", patternPropertiesHold],
  ["additionalProperties", additionalPropertiesHold],
  ["propertyNames", (value, schema, check) =>
    !isJsonObject(value) ||
    Object.keys(value).every((name) => isValid(name, schema, check))],
]);

function hasType(value: Json, types: unknown): boolean {
  const wanted = Array.isArray(types) ? types : [types];
  const name = typeNameOf(value);
  return types === undefined || wanted.includes(name) ||
    (name === "integer" && wanted.includes("number"));
}

function countValid(value: Json, schemas: unknown, check: Check): number {
  if (!Array.isArray(schemas)) return 0;
  return schemas.filter((schema) => isValid(value, schema, check)).length;
}

function lengthOf(list: unknown): number {
  return Array.isArray(list) ? list.length : 0;
}

function numberRule(holds: (value: number, bound: number) => boolean): Rule {
  return (value, bound) =>
    typeof value !== "number" || typeof bound !== "number" ||
    holds(value, bound);
}

function sizeRule(
  sizeOf: (value: Json) => number | undefined,
  holds: (size: number, bound: number) => boolean,
): Rule {
  return (value, bound) => {
    const size = sizeOf(value);
    return size === undefined || typeof bound !== "number" ||
      holds(size, bound);
  };
}

function textSize(value: Json): number | undefined {
  return typeof value === "string" ? codePointLength(value) : undefined;
}

function arraySize(value: Json): number | undefined {
  return Array.isArray(value) ? value.length : undefined;
}

function objectSize(value: Json): number | undefined {
  return isJsonObject(value) ? Object.keys(value).length : undefined;
}

function isJsonObject(value: Json): value is JsonObject {
  return isObject(value);
}

/** Whether value / step is whole, up to what floating point makes of 0.3 / 0.1. */
function isMultiple(value: number, step: number): boolean {
  if (step <= 0) return true;
  const quotient = value / step;
  return Math.abs(quotient - Math.round(quotient)) < 1e-9;
}

function fitsPattern(text: string, pattern: unknown, check: Check): boolean {
  const node = typeof pattern === "string" ? parsePattern(pattern) : undefined;
  return node === undefined || matchesPattern(node, text, check.budget);
}

function areUnique(items: readonly Json[]): boolean {
  return items.every((item, at) =>
    items.slice(0, at).every((other) => !jsonEqual(item, other))
  );
}

function itemsHold(
  value: Json,
  items: unknown,
  check: Check,
  schema: Schema,
): boolean {
  if (!Array.isArray(value)) return true;
  if (Array.isArray(items)) {
    return value.slice(0, items.length).every((item, at) =>
      isValid(item, items[at], check)
    );
  }
  return value.slice(lengthOf(schema.prefixItems)).every((item) =>
    isValid(item, items, check)
  );
}

function propertiesHold(
  value: Json,
  properties: unknown,
  check: Check,
): boolean {
  if (!isJsonObject(value) || !isObject(properties)) return true;
  return Object.keys(value).every((name) =>
    isValid(value[name] ?? null, member(properties, name) ?? true, check)
  );
}

function patternPropertiesHold(
  value: Json,
  patterns: unknown,
  check: Check,
): boolean {
  if (!isJsonObject(value) || !isObject(patterns)) return true;
  return Object.entries(patterns).every(([pattern, schema]) =>
    Object.entries(value).every(([name, item]) =>
      !fitsPattern(name, pattern, check) || isValid(item, schema, check)
    )
  );
}

function additionalPropertiesHold(
  value: Json,
  additional: unknown,
  check: Check,
  schema: Schema,
): boolean {
  if (!isJsonObject(value)) return true;
  const { properties, patternProperties } = schema;
  const patterns = isObject(patternProperties)
    ? Object.keys(patternProperties)
    : [];
  return Object.entries(value).every(([name, item]) =>
    (isObject(properties) && Object.hasOwn(properties, name)) ||
    patterns.some((pattern) => fitsPattern(name, pattern, check)) ||
    isValid(item, additional, check)
  );
}

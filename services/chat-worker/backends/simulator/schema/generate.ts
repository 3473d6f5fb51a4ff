import { shuffled } from "../sampling/random.ts";
import { arrayValue } from "./array_value.ts";
import { conforms } from "./conforms.ts";
import type { GeneratorContext, Place } from "./context.ts";
import { combine, type FlatSchema, flattenSchema } from "./flatten.ts";
import { isJson, type Json } from "./json.ts";
import { numberCandidates } from "./number_value.ts";
import { objectValue } from "./object_value.ts";
import { stringCandidates } from "./string_value.ts";

/** Values within values. Deeper, a schema is given up. */
const DEPTH_MAX = 24;
/** From here on the simplest alternative is tried first, so that recursive schemas come to an end. */
const SIMPLE_FROM_DEPTH = 4;
/** New tries where chance may help: an array with two equal items, a text that misses its pattern. */
const TRIES = 3;
/** What a value costs beside the checks of it, in steps of the budget. */
const VALUE_STEPS = 20;
/** Alternatives are compared by size up to this many parts. */
const SIZE_MAX = 200;

type Accept = (value: Json) => boolean;

/**
 * Makes a value that is valid against a JSON Schema, with what the request says
 * where that fits. Undefined when none was found within the budget: the schema
 * contradicts itself, has no end, or asks for what this cannot make.
 */
export function generateValue(
  schema: unknown,
  place: Place,
  context: GeneratorContext,
): Json | undefined {
  const { budget } = context;
  if (place.depth > DEPTH_MAX) return undefined;
  const flat = flattenSchema(schema, context.root, budget);
  const accept = (value: Json) => conforms(value, schema, context.root, budget);
  for (let attempt = 0; attempt < TRIES; attempt++) {
    if (!budget.spend(VALUE_STEPS)) return undefined;
    const value = fromFlat(flat, accept, place, context);
    if (value !== undefined) return value;
  }
  return undefined;
}

function fromFlat(
  flat: FlatSchema,
  accept: Accept,
  place: Place,
  context: GeneratorContext,
): Json | undefined {
  const [alternatives, ...choices] = flat.choices;
  if (alternatives === undefined) {
    return fromKeywords(flat.keywords, accept, place, context);
  }
  for (const alternative of inOrder(alternatives, place, context)) {
    if (!context.budget.spend(VALUE_STEPS)) return undefined;
    const combined = combine(
      { keywords: flat.keywords, choices },
      flattenSchema(alternative, context.root, context.budget),
    );
    const value = fromFlat(combined, accept, place, context);
    if (value !== undefined) return value;
  }
  return undefined;
}

function inOrder(
  alternatives: readonly unknown[],
  place: Place,
  context: GeneratorContext,
): readonly unknown[] {
  const order = shuffled(context.random, alternatives);
  const isDeep = place.depth >= SIMPLE_FROM_DEPTH;
  const weigh = (schema: unknown) => {
    const flat = flattenSchema(schema, context.root, context.budget);
    if (isDeep) return sizeOf(flat.keywords, SIZE_MAX);
    // Optional values are written as "or null": say something rather than nothing.
    return flat.keywords.type === "null" ? 1 : 0;
  };
  return order
    .map((schema) => ({ schema, weight: weigh(schema) }))
    .sort((one, other) => one.weight - other.weight)
    .map(({ schema }) => schema);
}

/** How many values are in a value, up to `max`. */
function sizeOf(value: unknown, max: number): number {
  if (typeof value !== "object" || value === null) return 1;
  let size = 1;
  for (const part of Object.values(value)) {
    if (size >= max) break;
    size += sizeOf(part, max - size);
  }
  return size;
}

function fromKeywords(
  keywords: { [keyword: string]: unknown },
  accept: Accept,
  place: Place,
  context: GeneratorContext,
): Json | undefined {
  if ("const" in keywords) return firstAccepted([keywords.const], accept);
  if (Array.isArray(keywords.enum)) {
    return fromEnum(keywords.enum, accept, context);
  }
  for (const type of typesOf(keywords, place, context)) {
    const value = fromType(type, keywords, accept, place, context);
    if (value !== undefined) return value;
  }
  return undefined;
}

function fromEnum(
  members: readonly unknown[],
  accept: Accept,
  context: GeneratorContext,
): Json | undefined {
  const mentioned = members.filter((one) =>
    typeof one === "string" && context.hints.mentions(one)
  );
  const spoken = shuffled(
    context.random,
    members.filter((one) => one !== null),
  );
  return firstAccepted([...mentioned, ...spoken, ...members], accept);
}

function firstAccepted(
  values: readonly unknown[],
  accept: Accept,
): Json | undefined {
  for (const value of values) {
    if (isJson(value) && accept(value)) return value;
  }
  return undefined;
}

const TYPE_KEYWORDS: readonly (readonly [string, readonly string[]])[] = [
  ["object", ["properties", "required", "additionalProperties"]],
  ["object", ["minProperties", "maxProperties", "patternProperties"]],
  ["array", ["items", "prefixItems", "minItems", "maxItems", "contains"]],
  ["string", ["pattern", "format", "minLength", "maxLength"]],
  ["number", ["minimum", "maximum", "multipleOf"]],
  ["number", ["exclusiveMinimum", "exclusiveMaximum"]],
];

/** The types to try in order; without `type`, the one its keywords are about, or a text. */
function typesOf(
  keywords: { [keyword: string]: unknown },
  place: Place,
  context: GeneratorContext,
): readonly unknown[] {
  const { type } = keywords;
  if (Array.isArray(type)) {
    const isNull = (name: unknown) => name === "null" ? 1 : 0;
    const order = shuffled(context.random, type);
    const sign = place.depth >= SIMPLE_FROM_DEPTH ? -1 : 1;
    return order.sort((one, other) => sign * (isNull(one) - isNull(other)));
  }
  if (type !== undefined) return [type];
  const told = TYPE_KEYWORDS.find(([, names]) =>
    names.some((name) => name in keywords)
  );
  return [told?.[0] ?? "string", "string", "object", "number", "null"];
}

function fromType(
  type: unknown,
  keywords: { [keyword: string]: unknown },
  accept: Accept,
  place: Place,
  context: GeneratorContext,
): Json | undefined {
  switch (type) {
    case "object":
      return accepted(objectValue(keywords, place, context, generateValue));
    case "array":
      return accepted(arrayValue(keywords, place, context, generateValue));
    case "string":
      return taken(stringCandidates(keywords, place, context));
    case "integer":
      return taken(numberCandidates(keywords, true, context));
    case "number":
      return taken(numberCandidates(keywords, false, context));
    case "boolean":
      return firstAccepted(shuffled(context.random, [true, false]), accept);
    case "null":
      return accepted(null);
    default:
      return undefined;
  }

  function accepted(value: Json | undefined): Json | undefined {
    return value !== undefined && accept(value) ? value : undefined;
  }

  function taken<T extends string | number>(
    candidates: Iterable<T>,
  ): T | undefined {
    for (const candidate of candidates) {
      if (!accept(candidate)) continue;
      context.hints.take(candidate);
      return candidate;
    }
    return undefined;
  }
}

/** What the generators of objects and arrays call for the values inside. */
export type GenerateValue = typeof generateValue;

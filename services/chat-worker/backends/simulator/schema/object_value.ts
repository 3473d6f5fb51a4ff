import { type GeneratorContext, labelOf, type Place } from "./context.ts";
import type { GenerateValue } from "./generate.ts";
import { isObject, type Json, type JsonObject, member } from "./json.ts";
import { parsePattern } from "./pattern.ts";
import { matchesPattern } from "./pattern_match.ts";
import { writePattern } from "./pattern_text.ts";

/** From this depth on only required properties, so that recursive schemas come to an end. */
const REQUIRED_ONLY_FROM_DEPTH = 4;
/** Entries of an object whose names are free. */
const FREE_ENTRIES = 2;
const FREE_NAMES = ["first", "second", "third", "fourth", "fifth", "sixth"];
const PROPERTIES_MAX = 1000;

type Keywords = { [keyword: string]: unknown };

/** An object for a schema's keywords. Undefined when a property it needs cannot be made. */
export function objectValue(
  keywords: Keywords,
  place: Place,
  context: GeneratorContext,
  generate: GenerateValue,
): JsonObject | undefined {
  const required = namesOf(keywords.required);
  const wanted = new Set([
    ...required,
    ...optionalNames(keywords, required, place, context),
  ]);
  const entries = new Map<string, Json>();
  for (const name of inSchemaOrder(keywords, wanted)) {
    const below = { name, depth: place.depth + 1 };
    const value = generate(schemaOf(keywords, name, context), below, context);
    if (value !== undefined) entries.set(name, value);
    else if (required.includes(name)) return undefined;
  }
  addFreeEntries(entries, keywords, place, context, generate);
  return Object.fromEntries(entries);
}

function optionalNames(
  keywords: Keywords,
  required: readonly string[],
  place: Place,
  context: GeneratorContext,
): readonly string[] {
  const { properties } = keywords;
  const names = isObject(properties) ? Object.keys(properties) : [];
  const optional = names.filter((name) => !required.includes(name));
  const min = numberOr(keywords.minProperties, 0) - required.length;
  const max = numberOr(keywords.maxProperties, Infinity) - required.length;
  if (place.depth >= REQUIRED_ONLY_FROM_DEPTH) {
    return optional.slice(0, Math.max(0, min));
  }
  const told = context.optionalProperties === "all"
    ? optional
    : optional.filter((name) => isHinted(name, properties, context));
  // A call without any argument is rarely what a function with parameters wants.
  const atLeast = required.length === 0 && place.depth === 0 ? 1 : 0;
  const filled = told.length >= Math.max(atLeast, min)
    ? told
    : [...new Set([...told, ...optional])].slice(0, Math.max(atLeast, min));
  return filled.slice(0, Math.max(0, max));
}

/** Whether the request holds a value for this property. */
function isHinted(
  name: string,
  properties: unknown,
  context: GeneratorContext,
): boolean {
  const schema = isObject(properties) ? member(properties, name) : undefined;
  if (!isObject(schema)) return false;
  const { type, description } = schema;
  if (Array.isArray(schema.enum)) {
    return schema.enum.some((one) =>
      typeof one === "string" && context.hints.mentions(one)
    );
  }
  if (type === "integer" || type === "number") {
    return context.hints.mentions(labelOf(name)) &&
      context.hints.numbers().length > 0;
  }
  const about = typeof description === "string" ? description : "";
  return type === "string" &&
    context.hints.texts(labelOf(name), about).length > 0;
}

/** Required names that `properties` does not have come last. */
function inSchemaOrder(
  keywords: Keywords,
  wanted: ReadonlySet<string>,
): readonly string[] {
  const { properties } = keywords;
  const known = isObject(properties) ? Object.keys(properties) : [];
  return [...new Set([...known.filter((name) => wanted.has(name)), ...wanted])]
    .slice(0, PROPERTIES_MAX);
}

function schemaOf(
  keywords: Keywords,
  name: string,
  context: GeneratorContext,
): unknown {
  const { properties, patternProperties, additionalProperties } = keywords;
  const own = isObject(properties) ? member(properties, name) : undefined;
  const parts: unknown[] = own === undefined ? [] : [own];
  if (isObject(patternProperties)) {
    for (const [pattern, schema] of Object.entries(patternProperties)) {
      const node = parsePattern(pattern);
      if (node && matchesPattern(node, name, context.budget)) {
        parts.push(schema);
      }
    }
  }
  if (parts.length === 0) return additionalProperties ?? true;
  return parts.length === 1 ? parts[0] : { allOf: parts };
}

/** Entries with free names: as many as `minProperties` lacks, and a few where an object is nothing but a map. */
function addFreeEntries(
  entries: Map<string, Json>,
  keywords: Keywords,
  place: Place,
  context: GeneratorContext,
  generate: GenerateValue,
): void {
  const { properties, patternProperties, additionalProperties } = keywords;
  const isMap = !isObject(properties) &&
    (isObject(additionalProperties) || isObject(patternProperties));
  const isDeep = place.depth >= REQUIRED_ONLY_FROM_DEPTH;
  const count = Math.min(
    Math.max(
      numberOr(keywords.minProperties, 0),
      isMap && !isDeep ? FREE_ENTRIES : 0,
    ),
    numberOr(keywords.maxProperties, Infinity),
    PROPERTIES_MAX,
  );
  for (let at = 0; entries.size < count && at < 2 * count; at++) {
    const stem = freeName(at, keywords, place, context, generate);
    if (stem === undefined) continue;
    // A pattern such as `^x-` gives the same name each time.
    const name = entries.has(stem) ? `${stem}${FREE_NAMES[at] ?? at}` : stem;
    const below = { name: place.name, depth: place.depth + 1 };
    const value = generate(schemaOf(keywords, name, context), below, context);
    if (value !== undefined) entries.set(name, value);
  }
}

function freeName(
  at: number,
  keywords: Keywords,
  place: Place,
  context: GeneratorContext,
  generate: GenerateValue,
): string | undefined {
  const { patternProperties, propertyNames } = keywords;
  if (propertyNames !== undefined) {
    const schema = { allOf: [{ type: "string" }, propertyNames] };
    const below = { name: "", depth: place.depth + 1 };
    const name = generate(schema, below, context);
    return typeof name === "string" ? name : undefined;
  }
  const pattern = isObject(patternProperties)
    ? Object.keys(patternProperties)[0]
    : undefined;
  const node = pattern === undefined ? undefined : parsePattern(pattern);
  if (node) return writePattern(node, { ...context, extraMax: 4 });
  return FREE_NAMES[at] ?? `entry_${at + 1}`;
}

function namesOf(value: unknown): readonly string[] {
  if (!Array.isArray(value)) return [];
  return [...new Set(value)].filter((name) => typeof name === "string");
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === "number" ? value : fallback;
}

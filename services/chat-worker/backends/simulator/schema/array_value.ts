import { integerBetween } from "../sampling/random.ts";
import type { GeneratorContext, Place } from "./context.ts";
import type { GenerateValue } from "./generate.ts";
import { type Json, jsonEqual } from "./json.ts";

/** Items of an array that may have any number of them. */
const ITEMS_USUAL = 3;
/** From this depth on no more items than there must be. */
const FEW_FROM_DEPTH = 4;
/** More items than this are given up: nobody reads them. */
const ITEMS_MAX = 1000;
/** Tries to find an item unlike those before it. */
const UNIQUE_TRIES = 8;

/** An array for a schema's keywords. Undefined when its items cannot be made. */
export function arrayValue(
  keywords: { [keyword: string]: unknown },
  place: Place,
  context: GeneratorContext,
  generate: GenerateValue,
): Json[] | undefined {
  const count = countOf(keywords, place, context);
  if (count > ITEMS_MAX) return undefined;
  const below = { name: place.name, depth: place.depth + 1 };
  const min = numberOr(keywords.minItems, 0);
  const items: Json[] = [];
  while (items.length < count) {
    const schema = schemaOf(keywords, items.length);
    const item = keywords.uniqueItems === true
      ? unlike(items, () => generate(schema, below, context))
      : generate(schema, below, context);
    // An item too many for the schema is no reason to have none.
    if (item === undefined) return items.length >= min ? items : undefined;
    items.push(item);
  }
  return items;
}

function countOf(
  keywords: { [keyword: string]: unknown },
  place: Place,
  context: GeneratorContext,
): number {
  const prefix = keywords.prefixItems;
  const needed = Math.max(
    numberOr(keywords.minItems, 0),
    Array.isArray(prefix) ? prefix.length : 0,
    keywords.contains === undefined ? 0 : 1,
  );
  const max = numberOr(keywords.maxItems, Infinity);
  const isFree = keywords.items !== false && !Array.isArray(keywords.items);
  const usual = isFree && place.depth < FEW_FROM_DEPTH
    ? integerBetween(context.random, 1, ITEMS_USUAL)
    : 0;
  return Math.min(Math.max(needed, usual), max);
}

function schemaOf(
  keywords: { [keyword: string]: unknown },
  at: number,
): unknown {
  const { prefixItems, items, contains } = keywords;
  for (const list of [prefixItems, items]) {
    if (Array.isArray(list) && at < list.length) return list[at];
  }
  const rest = Array.isArray(items) ? true : items ?? true;
  return at === 0 && contains !== undefined
    ? { allOf: [rest, contains] }
    : rest;
}

function unlike(
  others: readonly Json[],
  make: () => Json | undefined,
): Json | undefined {
  for (let attempt = 0; attempt < UNIQUE_TRIES; attempt++) {
    const item = make();
    if (item === undefined) return undefined;
    if (!others.some((other) => jsonEqual(item, other))) return item;
  }
  return undefined;
}

function numberOr(value: unknown, fallback: number): number {
  return typeof value === "number" ? value : fallback;
}

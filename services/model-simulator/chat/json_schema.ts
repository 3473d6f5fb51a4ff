/**
 * Checks JSON schemas and generates values for them, within bounds, since schemas come
 * from callers. Pure.
 */
import { ApiError } from "@gateway/shared/openai/error";
import { isJsonObject, valueAt } from "@gateway/shared/process/error_text";
import { type Random, someWords } from "./language.ts";

type Schema = { readonly [keyword: string]: unknown };

/** A schema of a request, and where it stands. */
export interface NamedSchema {
  /** For example `response_format`. */
  readonly param: string;
  readonly name: string;
  /** Every object must be closed, and all its properties required. */
  readonly isStrict: boolean;
  readonly schema: Schema;
}

const KEYWORDS: ReadonlySet<string> = new Set([
  "type",
  "properties",
  "required",
  "additionalProperties",
  "items",
  "enum",
  "const",
  "anyOf",
  "$ref",
  "$defs",
  "definitions",
  "$schema",
  "$id",
  "title",
  "description",
  "default",
  "examples",
  "format",
  "minimum",
  "maximum",
  "exclusiveMinimum",
  "exclusiveMaximum",
  "multipleOf",
  "minItems",
  "maxItems",
  "minLength",
  "maxLength",
]);
const TYPES: ReadonlySet<unknown> = new Set([
  "string",
  "number",
  "integer",
  "boolean",
  "object",
  "array",
  "null",
]);
/** About as many as real servers allow. */
const SCHEMAS_MAX = 2_000;
const REFERENCE_CHARS_MAX = 1_000;
/** Below this depth of a value, everything is as small as the schema allows. */
const VALUE_DEPTH_SMALL = 5;
const VALUE_DEPTH_MAX = 32;
/**
 * The most that one value may cost: 1 for a schema, for a member examined, and for two
 * characters.
 */
const VALUE_COST_MAX = 5_000;
const CHARS_PER_COST = 2;
/** An alternative that has no value costs more, because it throws. */
const FAILED_COST = 50;
const WORDS_CHARS = 40;
const MORE_ITEMS_MAX = 2;
const NUMBER_SPAN = 100;

const FORMATS: ReadonlyMap<unknown, string> = new Map([
  ["date-time", "2026-01-31T12:30:00Z"],
  ["date", "2026-01-31"],
  ["time", "12:30:00Z"],
  ["duration", "PT1H30M"],
  ["email", "reader@example.com"],
  ["hostname", "www.example.com"],
  ["ipv4", "192.0.2.1"],
  ["ipv6", "2001:db8::1"],
  ["uuid", "4b6d1b5e-8a3c-4f0e-9d2a-7c1e5f3b9a60"],
  ["uri", "https://example.com/"],
]);

/**
 * Throws an {@link ApiError} for a keyword that {@link valueFor} would ignore, and in
 * strict mode for what OpenAI's refuses.
 */
export function checkSchema(named: NamedSchema): void {
  const { schema: root, isStrict } = named;
  if (isStrict && root.type !== "object") {
    throw faultIn(named, "the root must be of type 'object'");
  }
  const schemas: unknown[] = [root];
  // The list grows while it is walked.
  for (const schema of schemas) {
    const fault = schemas.length > SCHEMAS_MAX
      ? "it is too large"
      : faultOf(schema, isStrict);
    if (fault !== undefined) throw faultIn(named, fault);
    const { $ref, items, anyOf, ...groups } = objectOf(schema);
    if ($ref !== undefined) targetOf($ref, named);
    const { properties, $defs, definitions } = groups;
    const members = [properties, $defs, definitions].map(objectOf);
    const inner = [...members.flatMap(Object.values), ...listOf(anyOf)];
    schemas.push(...inner.slice(0, SCHEMAS_MAX));
    if (items !== undefined) schemas.push(items);
  }
}

function faultOf(schema: unknown, isStrict: boolean): string | undefined {
  if (!isJsonObject(schema)) return "a schema must be an object";
  const unknown = Object.keys(schema).find((name) => !KEYWORDS.has(name));
  if (unknown !== undefined) {
    return `'${unknown.slice(0, 64)}' is not permitted`;
  }
  const types = [schema.type ?? []].flat();
  if (!types.every((type) => TYPES.has(type))) return "'type' is unknown";
  if (!isStrict || !types.includes("object")) return undefined;
  if (schema.additionalProperties !== false) {
    return "'additionalProperties' is required to be supplied and to be false";
  }
  const required = new Set(listOf(schema.required));
  const missing = Object.keys(objectOf(schema.properties))
    .find((name) => !required.has(name));
  return missing === undefined
    ? undefined
    : "'required' is required to be supplied and to be an array including " +
      `every key in properties. Missing '${missing.slice(0, 64)}'`;
}

function faultIn({ param, name }: NamedSchema, why: string): ApiError {
  const message = `Invalid schema for ${param} '${name}': ${why}.`;
  const wireCode = "invalid_json_schema";
  return new ApiError("invalid_value", message, { param, wireCode });
}

/** What a reference within the schema leads to. */
function targetOf(reference: unknown, named: NamedSchema): unknown {
  const [root, ...steps] = String(reference).slice(0, REFERENCE_CHARS_MAX)
    .split("/");
  const path = steps.map((step) =>
    step.replaceAll("~1", "/").replaceAll("~0", "~")
  );
  const found = root === "#" ? valueAt(named.schema, path) : undefined;
  if (found === undefined) throw faultIn(named, "'$ref' leads nowhere");
  return found;
}

/**
 * A value that the schema allows. Throws an {@link ApiError} if none is found within
 * bounds.
 */
export function valueFor(named: NamedSchema, random: Random): unknown {
  return new ValueMaker(named, random).make(named.schema, 0);
}

class ValueMaker {
  #cost = 0;

  constructor(readonly named: NamedSchema, readonly random: Random) {}

  make(value: unknown, depth: number): unknown {
    this.#spend(1);
    if (depth > VALUE_DEPTH_MAX) throw faultIn(this.named, "it never ends");
    const schema = objectOf(value);
    if (schema.$ref !== undefined) {
      return this.make(targetOf(schema.$ref, this.named), depth + 1);
    }
    const fixed = "const" in schema
      ? schema.const
      : this.#oneOf(listOf(schema.enum));
    if (fixed !== undefined) {
      this.#spend(JSON.stringify(fixed).length / CHARS_PER_COST);
      return fixed;
    }
    const isSmall = depth >= VALUE_DEPTH_SMALL;
    const options = [...listOf(schema.anyOf), ...listOf(schema.oneOf)];
    if (options.length > 0) return this.#alternative(options, depth, isSmall);
    const makers: Record<string, () => unknown> = {
      object: () => this.#object(schema, depth, isSmall),
      array: () => this.#array(schema, depth, isSmall),
      string: () => this.#string(schema),
      integer: () => this.#number(schema, 1),
      number: () => this.#number(schema, 0),
      boolean: () => this.random() < 0.5,
    };
    return makers[typeOf(schema)]?.() ?? null;
  }

  #spend(cost: number): void {
    this.#cost += cost;
    if (this.#cost > VALUE_COST_MAX) {
      throw faultIn(this.named, "it is too large");
    }
  }

  #oneOf(values: unknown[]): unknown {
    return values[Math.floor(this.random() * values.length)];
  }

  /**
   * A value of the first alternative that has one. If it must be small, tries the
   * simplest first.
   */
  #alternative(options: unknown[], depth: number, isSmall: boolean): unknown {
    this.#spend(options.length);
    const order = isSmall
      ? options.toSorted((a, b) => weightOf(a) - weightOf(b))
      : [this.#oneOf(options), ...options];
    for (const option of order) {
      try {
        return this.make(option, depth + 1);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        this.#spend(FAILED_COST);
      }
    }
    throw faultIn(this.named, "none of its alternatives has a value");
  }

  #object(schema: Schema, depth: number, isSmall: boolean): unknown {
    const required = new Set(listOf(schema.required));
    const members = Object.entries(objectOf(schema.properties));
    this.#spend(required.size + members.length);
    return Object.fromEntries(
      members.filter(([name]) => required.has(name) || !isSmall)
        .map(([name, inner]) => [name, this.make(inner, depth + 1)]),
    );
  }

  #array(schema: Schema, depth: number, isSmall: boolean): unknown {
    const min = numberOf(schema.minItems, 0);
    const max = numberOf(schema.maxItems, Infinity);
    if (min > max) throw faultIn(this.named, "no number of items is in bounds");
    this.#spend(min);
    const more = isSmall ? 0 : 1 + Math.floor(this.random() * MORE_ITEMS_MAX);
    return Array.from(
      { length: Math.min(max, min + more) },
      () => this.make(schema.items ?? { type: "string" }, depth + 1),
    );
  }

  #string({ format, minLength, maxLength }: Schema): unknown {
    const min = numberOf(minLength, 0);
    this.#spend(Math.max(min, WORDS_CHARS) / CHARS_PER_COST);
    return FORMATS.get(format) ??
      someWords(this.random).padEnd(min, " and so on")
        .slice(0, numberOf(maxLength, Infinity));
  }

  /**
   * A number near the lower bound; with `multipleOf`, one of the first permitted
   * multiples.
   */
  #number(schema: Schema, unit: 0 | 1): unknown {
    const min = numberOf(schema.minimum, -Infinity);
    const max = numberOf(schema.maximum, Infinity);
    const above = numberOf(schema.exclusiveMinimum, -Infinity);
    const below = numberOf(schema.exclusiveMaximum, Infinity);
    const least = Math.max(min, above);
    const most = Math.min(max, below);
    const step = numberOf(schema.multipleOf, unit);
    const from = least > -Infinity ? least : Math.min(1, most - step);
    const span = Math.min(most - from, NUMBER_SPAN);
    const near = [from + span * this.random(), from, from + step];
    const found = [...near, from + span / 2].map((number) =>
      step > 0
        ? Number((Math.ceil(number / step) * step).toPrecision(15))
        : number
    ).find((number) =>
      number >= min && number <= max && number > above && number < below
    );
    if (found === undefined) {
      throw faultIn(this.named, "no number is in bounds");
    }
    return found;
  }
}

/**
 * The type of the value to generate: the first one named, or the one that the keywords
 * imply.
 */
function typeOf({ type, properties, items }: Schema): string {
  const types = [type ?? []].flat();
  const named = types.find((each) => each !== "null") ?? types[0];
  if (named !== undefined) return String(named);
  if (properties !== undefined) return "object";
  return items === undefined ? "string" : "array";
}

/** Alternatives with nothing nested in them come before others. */
function weightOf(option: unknown): number {
  const { type, $ref } = objectOf(option);
  if (type === "null") return 0;
  return $ref === undefined && type !== "object" ? 1 : 2;
}

function objectOf(value: unknown): Schema {
  return isJsonObject(value) ? value : {};
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function numberOf(value: unknown, otherwise: number): number {
  return typeof value === "number" ? value : otherwise;
}

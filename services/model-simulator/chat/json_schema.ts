/** Generates values for JSON schemas, within bounds, since schemas come from callers. Pure. */
import { isJsonObject, valueAt } from "@gateway/shared/process/error_text";
import { HttpError } from "../serving/errors.ts";
import { type Random, someWords } from "./language.ts";

type Schema = { readonly [keyword: string]: unknown };

export interface NamedSchema {
  /** For example `response_format`. */
  readonly param: string;
  readonly name: string;
  /** Every object must be closed, and all its properties required. */
  readonly isStrict: boolean;
  readonly schema: Schema;
}

const KEYWORDS: ReadonlySet<string> = new Set([
  ...["type", "properties", "required", "additionalProperties", "items"],
  ...["enum", "const", "anyOf", "$ref", "$defs", "definitions", "$schema"],
  ...["$id", "title", "description", "default", "examples", "format"],
  ...["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"],
  ...["multipleOf", "minItems", "maxItems", "minLength", "maxLength"],
]);
const TYPES: ReadonlySet<unknown> = new Set([
  ...["string", "number", "integer", "boolean", "object", "array", "null"],
]);
/** About as much as real servers allow. A name below `properties` is two steps of the path. */
const SCHEMA_DEPTH_MAX = 64;
const SCHEMA_NODES_MAX = 2_000;
const ENUM_VALUES_MAX = 1_000;
const REFERENCE_CHARS_MAX = 1_000;
/** Below this depth of a value, everything is as small as the schema allows. */
const VALUE_DEPTH_SMALL = 5;
const VALUE_DEPTH_MAX = 32;
/** The most that one value may cost: 1 for a schema, for a member examined, and for two characters. */
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

function schemaError({ param, name }: NamedSchema, why: string): HttpError {
  const message = `Invalid schema for ${param} '${name}': ${why}.`;
  return new HttpError(message, { param, code: "invalid_json_schema" });
}

export function checkSchema(named: NamedSchema): void {
  const { schema: root, isStrict } = named;
  let nodes = 0;
  const walk = (schema: unknown, path: readonly string[]) => {
    nodes += 1;
    const fault = nodes > SCHEMA_NODES_MAX || path.length > SCHEMA_DEPTH_MAX
      ? "the schema is too large"
      : faultOf(schema, root, isStrict);
    if (fault !== undefined) {
      const context = path.map((step) => `'${step}'`).join(", ");
      throw schemaError(named, `In context=(${context}), ${fault}`);
    }
    const { items, ...groups } = objectOf(schema);
    for (const group of ["properties", "$defs", "definitions", "anyOf"]) {
      for (const [name, inner] of membersOf(groups[group])) {
        walk(inner, [...path, group, name]);
      }
    }
    if (items !== undefined) walk(items, [...path, "items"]);
  };
  walk(root, []);
  if (isStrict && root.type !== "object") {
    throw schemaError(named, "the root must be of type 'object'");
  }
}

function faultOf(
  schema: unknown,
  root: Schema,
  isStrict: boolean,
): string | undefined {
  if (!isJsonObject(schema)) return "a schema must be an object";
  const unknown = Object.keys(schema).find((name) => !KEYWORDS.has(name));
  if (unknown !== undefined) {
    return `'${unknown.slice(0, 64)}' is not permitted`;
  }
  const types = [schema.type ?? []].flat();
  if (!types.every((type) => TYPES.has(type))) return "'type' is unknown";
  if (listOf(schema.enum).length > ENUM_VALUES_MAX) return "'enum' is too long";
  if (schema.$ref !== undefined && resolve(root, schema.$ref) === undefined) {
    return "'$ref' leads nowhere";
  }
  if (!isStrict || !types.includes("object")) return undefined;
  if (schema.additionalProperties !== false) {
    return "'additionalProperties' is required to be supplied and to be false";
  }
  const required = new Set(listOf(schema.required));
  const missing = membersOf(schema.properties)
    .find(([name]) => !required.has(name));
  return missing &&
    "'required' is required to be supplied and to be an array including " +
      `every key in properties. Missing '${missing[0].slice(0, 64)}'`;
}

/** A value that the schema allows. Throws an {@link HttpError} if none is found within bounds. */
export function valueFor(named: NamedSchema, random: Random): unknown {
  return new ValueMaker(named, random).make(named.schema, 0);
}

class ValueMaker {
  #cost = 0;

  constructor(readonly named: NamedSchema, readonly random: Random) {}

  make(value: unknown, depth: number): unknown {
    this.#spend(1);
    if (depth > VALUE_DEPTH_MAX) throw this.#noValue("it never ends");
    const schema = objectOf(value);
    if (schema.$ref !== undefined) {
      return this.make(resolve(this.named.schema, schema.$ref), depth + 1);
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
    switch (typeOf(schema)) {
      case "object":
        return this.#object(schema, depth, isSmall);
      case "array":
        return this.#array(schema, depth, isSmall);
      case "string":
        return this.#string(schema);
      case "integer":
        return this.#number(schema, 1);
      case "number":
        return this.#number(schema, 0);
      case "boolean":
        return this.random() < 0.5;
      default:
        return null;
    }
  }

  #spend(cost: number): void {
    this.#cost += cost;
    if (this.#cost > VALUE_COST_MAX) throw this.#noValue("too large");
  }

  #oneOf(values: unknown[]): unknown {
    return values[Math.floor(this.random() * values.length)];
  }

  /** A value of the first alternative that has one. If it must be small, tries the simplest first. */
  #alternative(options: unknown[], depth: number, isSmall: boolean): unknown {
    this.#spend(options.length);
    const order = isSmall
      ? options.toSorted((a, b) => weightOf(a) - weightOf(b))
      : [this.#oneOf(options), ...options];
    for (const option of order) {
      try {
        return this.make(option, depth + 1);
      } catch (error) {
        if (!(error instanceof HttpError)) throw error;
        this.#spend(FAILED_COST);
      }
    }
    throw this.#noValue("none of its alternatives has a value");
  }

  #object(schema: Schema, depth: number, isSmall: boolean): unknown {
    const required = new Set(listOf(schema.required));
    const properties = membersOf(schema.properties);
    this.#spend(required.size + properties.length);
    return Object.fromEntries(
      properties.filter(([name]) => required.has(name) || !isSmall)
        .map(([name, inner]) => [name, this.make(inner, depth + 1)]),
    );
  }

  #array(schema: Schema, depth: number, isSmall: boolean): unknown {
    const { min, max } = this.#boundsOf(schema.minItems ?? 0, schema.maxItems);
    this.#spend(min);
    const more = isSmall ? 0 : 1 + Math.floor(this.random() * MORE_ITEMS_MAX);
    return Array.from(
      { length: Math.min(max, min + more) },
      () => this.make(schema.items ?? { type: "string" }, depth + 1),
    );
  }

  #string(schema: Schema): unknown {
    const { min, max } = this.#boundsOf(
      schema.minLength ?? 0,
      schema.maxLength,
    );
    this.#spend(Math.max(min, WORDS_CHARS) / CHARS_PER_COST);
    const known = FORMATS.get(schema.format);
    if (known !== undefined) return known;
    return someWords(this.random).padEnd(min, " and so on").slice(0, max);
  }

  /** A number near the lower bound; with `multipleOf`, one of the first permitted multiples. */
  #number(schema: Schema, unit: 0 | 1): unknown {
    const { min, max } = this.#boundsOf(schema.minimum, schema.maximum);
    const open = this.#boundsOf(
      schema.exclusiveMinimum,
      schema.exclusiveMaximum,
    );
    const least = Math.max(min, open.min);
    const most = Math.min(max, open.max);
    const step = numberOf(schema.multipleOf) ?? unit;
    const from = least > -Infinity ? least : Math.min(1, most - step);
    const span = Math.min(most - from, NUMBER_SPAN);
    const wanted = from + span * this.random();
    const found = [wanted, from, from + step, from + span / 2]
      .map((near) =>
        step > 0
          ? Number((Math.ceil(near / step) * step).toPrecision(15))
          : near
      )
      .find((number) =>
        number >= min && number <= max && number > open.min && number < open.max
      );
    if (found === undefined) throw this.#noValue("no number is in bounds");
    return found;
  }

  #boundsOf(least: unknown, most: unknown) {
    const min = numberOf(least) ?? -Infinity;
    const max = numberOf(most) ?? Infinity;
    if (min > max) throw this.#noValue("its minimum exceeds its maximum");
    return { min, max };
  }

  #noValue(why: string): HttpError {
    return schemaError(this.named, why);
  }
}

/** The type of the value to generate: the first one named, or the one that the keywords imply. */
function typeOf(schema: Schema): unknown {
  const types = [schema.type ?? []].flat();
  const named = types.find((type) => type !== "null") ?? types[0];
  if (named !== undefined) return named;
  if (schema.properties !== undefined) return "object";
  return schema.items === undefined ? "string" : "array";
}

/** Alternatives with nothing nested in them come before others. */
function weightOf(option: unknown): number {
  const { type, $ref } = objectOf(option);
  if (type === "null") return 0;
  return $ref === undefined && type !== "object" ? 1 : 2;
}

/** The target of a reference within the schema; undefined if there is none. */
function resolve(root: Schema, reference: unknown): unknown {
  if (typeof reference !== "string" || !reference.startsWith("#")) {
    return undefined;
  }
  const steps = reference.slice(1, REFERENCE_CHARS_MAX).split("/").slice(1);
  return valueAt(
    root,
    steps.map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~")),
  );
}

function objectOf(value: unknown): Schema {
  return isJsonObject(value) ? value : {};
}

function membersOf(value: unknown): [name: string, member: unknown][] {
  return typeof value === "object" && value !== null
    ? Object.entries(value)
    : [];
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value)
    ? value
    : undefined;
}

/**
 * Values for JSON schemas: OpenAI's strict subset is checked and met; for functions
 * that are not strict, what is outside of it is ignored. All work is bounded, since
 * schemas come from callers. Pure.
 */
import { type Random, someWords } from "./language.ts";
import { RequestError } from "./request.ts";

type Schema = Record<string, unknown>;

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
/** About what servers allow. */
const SCHEMA_DEPTH_MAX = 32;
const SCHEMA_NODES_MAX = 2_000;
const ENUM_VALUES_MAX = 1_000;
/** Deeper in a value everything is as small as it may be. */
const VALUE_DEPTH_SMALL = 5;
const VALUE_DEPTH_MAX = 32;
/** Schemas and members of them looked at for one value; an alternative in vain costs more. */
const VALUE_STEPS_MAX = 5_000;
const FAILED_STEPS = 50;
const VALUE_CHARS_MAX = 10_000;
/** What a text without a length costs. */
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

/** How a schema is called in refusals, and how strictly it is meant. */
export interface SchemaName {
  /** As in `response_format`. */
  readonly param: string;
  readonly name: string;
  /** Every object must be closed, and all its properties required. */
  readonly isStrict: boolean;
}

/** Throws a {@link RequestError} for a schema outside of the subset. */
export function checkSchema(root: Schema, called: SchemaName): void {
  let nodes = 0;
  const refuse = (reason: string, path: readonly string[]): never => {
    const context = path.map((step) => `'${step}'`).join(", ");
    throw new RequestError(
      `Invalid schema for ${called.param} '${called.name}': ` +
        `In context=(${context}), ${reason}.`,
      { param: called.param, code: "invalid_json_schema" },
    );
  };
  const walk = (value: unknown, path: readonly string[], depth: number) => {
    nodes += 1;
    if (!isObject(value)) return refuse("a schema must be an object", path);
    if (nodes > SCHEMA_NODES_MAX) refuse("the schema is too large", path);
    if (depth > SCHEMA_DEPTH_MAX) refuse("the schema is too deep", path);
    for (const keyword of Object.keys(value)) {
      if (KEYWORDS.has(keyword)) continue;
      refuse(`'${keyword.slice(0, 64)}' is not permitted`, path);
    }
    const types = [value.type ?? []].flat();
    if (!types.every((type) => TYPES.has(type))) {
      refuse("'type' is none that there is", path);
    }
    if (Array.isArray(value.enum) && value.enum.length > ENUM_VALUES_MAX) {
      refuse("'enum' has too many values", path);
    }
    if (called.isStrict && types.includes("object")) {
      checkClosed(value, (reason) => refuse(reason, path));
    }
    for (const group of ["properties", "$defs", "definitions"]) {
      for (const [name, inner] of Object.entries(objectOf(value[group]))) {
        walk(inner, [...path, group, name], depth + 1);
      }
    }
    for (const [index, inner] of listOf(value.anyOf).entries()) {
      walk(inner, [...path, "anyOf", String(index)], depth + 1);
    }
    if (value.items !== undefined) {
      walk(value.items, [...path, "items"], depth + 1);
    }
    if (value.$ref !== undefined && resolve(root, value.$ref) === undefined) {
      refuse("'$ref' leads nowhere", path);
    }
  };
  walk(root, [], 0);
  if (called.isStrict && root.type !== "object") {
    refuse("the root must be of type 'object'", []);
  }
}

function checkClosed(schema: Schema, refuse: (reason: string) => never): void {
  if (schema.additionalProperties !== false) {
    refuse(
      "'additionalProperties' is required to be supplied and to be false",
    );
  }
  const required = new Set(listOf(schema.required));
  for (const name of Object.keys(objectOf(schema.properties))) {
    if (required.has(name)) continue;
    refuse(
      "'required' is required to be supplied and to be an array including " +
        `every key in properties. Missing '${name.slice(0, 64)}'`,
    );
  }
}

/** Why no value was found. */
class NoValueError extends Error {}

/** How large a value should be. */
export interface ValueOptions {
  random: Random;
  /** As small as the schema allows. */
  isSmall: boolean;
}

/** A value that the schema allows. Throws a {@link RequestError} if none is found within bounds. */
export function valueFor(
  root: Schema,
  called: SchemaName,
  options: ValueOptions,
): unknown {
  try {
    return new ValueMaker(root, options).make(root, 0);
  } catch (error) {
    if (!(error instanceof NoValueError)) throw error;
    throw new RequestError(
      `Invalid schema for ${called.param} '${called.name}': ${error.message}.`,
      { param: called.param, code: "invalid_json_schema" },
    );
  }
}

class ValueMaker {
  readonly #root: Schema;
  readonly #options: ValueOptions;
  #steps = 0;
  #chars = 0;

  constructor(root: Schema, options: ValueOptions) {
    this.#root = root;
    this.#options = options;
  }

  make(value: unknown, depth: number): unknown {
    this.#spend(1);
    if (depth > VALUE_DEPTH_MAX) throw new NoValueError("it never ends");
    const schema = objectOf(value);
    if (schema.$ref !== undefined) {
      return this.make(resolve(this.#root, schema.$ref), depth + 1);
    }
    if (schema.const !== undefined) return this.#fixed(schema.const);
    const choices = listOf(schema.enum);
    if (choices.length > 0) {
      const at = Math.floor(this.#options.random() * choices.length);
      return this.#fixed(choices[at]);
    }
    const options = [...listOf(schema.anyOf), ...listOf(schema.oneOf)];
    if (options.length > 0) return this.#makeOneOf(options, depth);
    return this.#makeOf(schema, depth);
  }

  #spend(steps: number): void {
    this.#steps += steps;
    if (this.#steps > VALUE_STEPS_MAX) throw new NoValueError("too large");
  }

  #spendChars(chars: number): void {
    this.#chars += chars;
    if (this.#chars > VALUE_CHARS_MAX) throw new NoValueError("too large");
  }

  #fixed(value: unknown): unknown {
    this.#spendChars(JSON.stringify(value).length);
    return value;
  }

  /** The first alternative, in an order that chance decides, that has a value. */
  #makeOneOf(options: unknown[], depth: number): unknown {
    this.#spend(options.length);
    const first = this.#isSmall(depth)
      ? 0
      : Math.floor(this.#options.random() * options.length);
    const order = [...options.slice(first), ...options.slice(0, first)];
    // Deep down, what ends at once comes first.
    if (this.#isSmall(depth)) {
      order.sort((a, b) => weightOf(a) - weightOf(b));
    }
    for (const option of order) {
      try {
        return this.make(option, depth + 1);
      } catch (error) {
        if (!(error instanceof NoValueError)) throw error;
        if (this.#steps > VALUE_STEPS_MAX) throw error;
        this.#spend(FAILED_STEPS);
      }
    }
    throw new NoValueError("none of its alternatives has a value");
  }

  #makeOf(schema: Schema, depth: number): unknown {
    switch (typeOf(schema)) {
      case "object":
        return this.#object(schema, depth);
      case "array":
        return this.#array(schema, depth);
      case "string":
        return this.#string(schema);
      case "integer":
        return this.#number(schema, 1);
      case "number":
        return this.#number(schema, 0);
      case "boolean":
        return this.#options.random() < 0.5;
      default:
        return null;
    }
  }

  #object(schema: Schema, depth: number): unknown {
    const required = new Set(listOf(schema.required));
    const properties = Object.entries(objectOf(schema.properties));
    this.#spend(required.size + properties.length);
    const entries = properties
      .filter(([name]) => required.has(name) || !this.#isSmall(depth))
      .map(([name, inner]): [string, unknown] => [
        name,
        this.make(inner, depth + 1),
      ]);
    return Object.fromEntries(entries);
  }

  #array(schema: Schema, depth: number): unknown {
    const min = numberOf(schema.minItems) ?? 0;
    const max = numberOf(schema.maxItems) ?? Infinity;
    this.#spend(min);
    if (min > max) throw new NoValueError("'minItems' is above 'maxItems'");
    const more = this.#isSmall(depth)
      ? 0
      : 1 + Math.floor(this.#options.random() * MORE_ITEMS_MAX);
    const length = Math.min(max, min + more);
    return Array.from(
      { length },
      () => this.make(schema.items ?? { type: "string" }, depth + 1),
    );
  }

  #string(schema: Schema): unknown {
    const min = numberOf(schema.minLength) ?? 0;
    const max = numberOf(schema.maxLength) ?? Infinity;
    this.#spendChars(Math.max(min, WORDS_CHARS));
    const known = FORMATS.get(schema.format);
    if (known !== undefined) return known;
    if (min > max) throw new NoValueError("'minLength' is above 'maxLength'");
    const text = this.#options.isSmall ? "x" : someWords(this.#options.random);
    return text.padEnd(min, " and so on").slice(0, max);
  }

  #number(schema: Schema, unit: 0 | 1): unknown {
    const step = numberOf(schema.multipleOf) ?? unit;
    const above = numberOf(schema.exclusiveMinimum);
    const below = numberOf(schema.exclusiveMaximum);
    const least = numberOf(schema.minimum) ?? above ?? -Infinity;
    const most = numberOf(schema.maximum) ?? below ?? Infinity;
    const isAllowed = (number: number) =>
      number >= Math.max(least, above ?? -Infinity) &&
      number <= Math.min(most, below ?? Infinity) &&
      number !== above && number !== below && Number.isFinite(number);
    const from = least > -Infinity ? least : Math.min(1, most);
    const wanted = from +
      this.#options.random() * Math.min(most - from, NUMBER_SPAN);
    for (const target of [wanted, from, (from + most) / 2, most]) {
      for (const round of [Math.floor, Math.ceil]) {
        const number = step > 0
          ? Number((round(target / step) * step).toPrecision(15))
          : target;
        const offset = step > 0 ? number + step : number;
        const found = [number, offset].find(isAllowed);
        if (found !== undefined) return found;
      }
    }
    throw new NoValueError("no number is between its bounds");
  }

  #isSmall(depth: number): boolean {
    return this.#options.isSmall || depth >= VALUE_DEPTH_SMALL;
  }
}

/** The type of the values to make: the first one named, or what the keywords speak of. */
function typeOf(schema: Schema): unknown {
  const types = [schema.type ?? []].flat();
  const named = types.find((type) => type !== "null") ?? types[0];
  if (named !== undefined) return named;
  if (schema.properties !== undefined) return "object";
  if (schema.items !== undefined) return "array";
  const isNumber = ["minimum", "maximum", "multipleOf"].some((keyword) =>
    schema[keyword] !== undefined
  );
  return isNumber ? "number" : "string";
}

/** Alternatives without anything inside come before others. */
function weightOf(option: unknown): number {
  const { type, $ref } = objectOf(option);
  if (type === "null") return 0;
  return $ref === undefined && type !== "object" ? 1 : 2;
}

/** What a reference within the schema leads to; undefined: nothing. */
function resolve(root: Schema, reference: unknown): unknown {
  if (typeof reference !== "string" || !reference.startsWith("#")) {
    return undefined;
  }
  let at: unknown = root;
  for (const step of reference.slice(1, 1_000).split("/").slice(1)) {
    const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (!isObject(at) || !Object.hasOwn(at, name)) return undefined;
    at = at[name];
  }
  return at;
}

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function objectOf(value: unknown): Schema {
  return isObject(value) ? value : {};
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value)
    ? value
    : undefined;
}

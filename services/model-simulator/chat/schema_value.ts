/** Generates values for JSON schemas, within bounds. Pure. */
import { ApiError } from "@gateway/shared/openai/error";
import type { PromptValues } from "./prompt_values.ts";
import {
  faultIn,
  listOf,
  type NamedSchema,
  objectOf,
  type Schema,
  targetOf,
} from "./json_schema.ts";
import { type Random, someWords } from "./language.ts";

/** Below this depth of a value, everything is as small as the schema allows. */
const DEPTH_SMALL = 5;
const DEPTH_MAX = 32;
/**
 * The most that one value may cost: 1 for a schema, for a member examined, and for two
 * characters.
 */
const COST_MAX = 5_000;
const CHARS_PER_COST = 2;
/** An alternative that has no value costs more, because it throws. */
const FAILED_COST = 50;
/** To look for a value in the prompt. */
const GIVEN_COST = 10;
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

/** Where values come from besides chance. */
export interface ValueSources {
  /** What the prompt gives. */
  readonly promptValues?: PromptValues;
  /** The value of a property, if it is not to be made: of a list, or of a text. */
  readonly fixed?: (name: string, form: "list" | "text") => unknown;
  /** Whether optional properties are left out that the prompt does not give. */
  readonly isSparse?: boolean;
}

/**
 * A value that the schema allows. Throws an {@link ApiError} if none is found within
 * bounds.
 */
export function valueFor(
  namedSchema: NamedSchema,
  random: Random,
  sources: ValueSources = {},
): unknown {
  const root = { depth: 0, name: "", isOptional: false };
  return new ValueMaker(namedSchema, random, sources).make(
    namedSchema.schema,
    root,
  );
}

/** Where a value stands. */
interface Place {
  readonly depth: number;
  /** The name of its property; empty for the root and for elements of lists. */
  readonly name: string;
  /** Whether it is left out unless the prompt gives it. */
  readonly isOptional: boolean;
}

const LEFT_OUT = Symbol("left out");

class ValueMaker {
  #cost = 0;

  constructor(
    readonly namedSchema: NamedSchema,
    readonly random: Random,
    readonly sources: ValueSources,
  ) {}

  /** A value, or `LEFT_OUT` for an optional one. */
  make(value: unknown, place: Place): unknown {
    this.#spend(1);
    if (place.depth > DEPTH_MAX) {
      throw faultIn(this.namedSchema, "it never ends");
    }
    const schema = objectOf(value);
    if (schema.$ref !== undefined) {
      return this.make(targetOf(schema.$ref, this.namedSchema), below(place));
    }
    if ("const" in schema) return this.#constant(schema.const);
    const values = listOf(schema.enum);
    if (values.length > 0) return this.#member(values, place);
    const options = [...listOf(schema.anyOf), ...listOf(schema.oneOf)];
    if (options.length > 0) return this.#alternative(options, place);
    switch (typeOf(schema)) {
      case "object":
        return this.#object(schema, place);
      case "array":
        return this.#array(schema, place);
      case "string":
        return this.#string(schema, place);
      case "integer":
        return this.#number(schema, { ...place, unit: 1 });
      case "number":
        return this.#number(schema, { ...place, unit: 0 });
      case "boolean":
        return this.#flag(place);
      default:
        return place.isOptional ? LEFT_OUT : null;
    }
  }

  #spend(cost: number): void {
    this.#cost += cost;
    if (this.#cost > COST_MAX) {
      throw faultIn(this.namedSchema, "it is too large");
    }
  }

  #constant(value: unknown): unknown {
    this.#spend(JSON.stringify(value).length / CHARS_PER_COST);
    return value;
  }

  /** One of a list: what the prompt mentions, or any. */
  #member(values: unknown[], { isOptional }: Place): unknown {
    this.#spend(values.length);
    const promptValue = this.sources.promptValues?.oneOf(values);
    if (promptValue === undefined && isOptional) return LEFT_OUT;
    return this.#constant(promptValue ?? this.#oneOf(values));
  }

  #flag({ name, isOptional }: Place): unknown {
    if (this.sources.promptValues?.mentions(name) === true) return true;
    return isOptional ? LEFT_OUT : this.random() < 0.5;
  }

  #oneOf(values: unknown[]): unknown {
    return values[Math.floor(this.random() * values.length)];
  }

  /**
   * A value of the first alternative that has one. If it must be small, tries the
   * simplest first.
   */
  #alternative(options: unknown[], place: Place): unknown {
    this.#spend(options.length);
    const isSmall = place.depth >= DEPTH_SMALL;
    const isGiven = this.sources.promptValues !== undefined;
    const order = isSmall
      ? options.toSorted((a, b) => weightOf(a) - weightOf(b))
      : [isGiven ? options.find(isNoNull) : this.#oneOf(options), ...options];
    let isLeftOut = false;
    for (const option of order) {
      try {
        const value = this.make(option, below(place));
        if (value !== LEFT_OUT) return value;
        isLeftOut = true;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        this.#spend(FAILED_COST);
      }
    }
    if (isLeftOut) return LEFT_OUT;
    throw faultIn(this.namedSchema, "none of its alternatives has a value");
  }

  #object(schema: Schema, { depth, isOptional }: Place): unknown {
    const { isSparse = false } = this.sources;
    if (isOptional) return LEFT_OUT;
    const required = new Set(listOf(schema.required));
    const members = Object.entries(objectOf(schema.properties));
    this.#spend(required.size + members.length);
    const isSmall = depth >= DEPTH_SMALL;
    return Object.fromEntries(
      members.filter(([name]) => required.has(name) || !isSmall)
        .map(([name, inner]) => {
          const isOptional = isSparse && !required.has(name);
          const place = { depth: depth + 1, name, isOptional };
          return [name, this.make(inner, place)] as const;
        })
        .filter(([, value]) => value !== LEFT_OUT),
    );
  }

  #array(schema: Schema, { depth, name, isOptional }: Place): unknown {
    const fixed = this.sources.fixed?.(name, "list");
    if (fixed !== undefined) return fixed;
    if (isOptional) return LEFT_OUT;
    const min = numberOf(schema.minItems, 0);
    const max = numberOf(schema.maxItems, Infinity);
    if (min > max) {
      throw faultIn(this.namedSchema, "no number of items is in bounds");
    }
    this.#spend(min);
    const isSmall = depth >= DEPTH_SMALL;
    const more = isSmall ? 0 : 1 + Math.floor(this.random() * MORE_ITEMS_MAX);
    const place = { depth: depth + 1, name: "", isOptional: false };
    return Array.from(
      { length: Math.min(max, min + more) },
      () => this.make(schema.items ?? { type: "string" }, place),
    );
  }

  #string(
    { format, minLength, maxLength }: Schema,
    { name, isOptional }: Place,
  ): unknown {
    const { fixed, promptValues } = this.sources;
    const min = numberOf(minLength, 0);
    const max = numberOf(maxLength, Infinity);
    this.#spend(Math.max(min, WORDS_CHARS) / CHARS_PER_COST);
    if (promptValues !== undefined) this.#spend(GIVEN_COST);
    const fits = (text: string) => text.length >= min && text.length <= max;
    const text = fixed?.(name, "text") ??
      promptValues?.text({ name, fits, isOptional }, format);
    if (text !== undefined) return text;
    if (isOptional) return LEFT_OUT;
    return FORMATS.get(format) ??
      someWords(this.random).padEnd(min, " and so on").slice(0, max);
  }

  /**
   * The number that the prompt gives, or one near the lower bound; with `multipleOf`,
   * one of the first permitted multiples.
   */
  #number(schema: Schema, place: Place & { unit: 0 | 1 }): unknown {
    const { name, isOptional, unit } = place;
    const min = numberOf(schema.minimum, -Infinity);
    const max = numberOf(schema.maximum, Infinity);
    const above = numberOf(schema.exclusiveMinimum, -Infinity);
    const under = numberOf(schema.exclusiveMaximum, Infinity);
    const step = numberOf(schema.multipleOf, unit);
    const isIn = (number: number) =>
      number >= min && number <= max && number > above && number < under;
    const onStep = (number: number) =>
      step > 0
        ? Number((Math.ceil(number / step) * step).toPrecision(15))
        : number;
    const fits = (number: number) => isIn(number) && onStep(number) === number;
    if (this.sources.promptValues !== undefined) this.#spend(GIVEN_COST);
    const promptValue = this.sources.promptValues?.number({
      name,
      fits,
      isOptional,
    });
    if (promptValue !== undefined) return promptValue;
    if (isOptional) return LEFT_OUT;
    const least = Math.max(min, above);
    const most = Math.min(max, under);
    const from = least > -Infinity ? least : Math.min(1, most - step);
    const span = Math.min(most - from, NUMBER_SPAN);
    const near = [from + span * this.random(), from, from + step];
    const found = [...near, from + span / 2].map(onStep).find(isIn);
    if (found === undefined) {
      throw faultIn(this.namedSchema, "no number is in bounds");
    }
    return found;
  }
}

const below = (place: Place): Place => ({ ...place, depth: place.depth + 1 });

/**
 * The type of the value to generate: the first one named, or the one that the keywords
 * imply.
 */
function typeOf({ type, properties, items }: Schema): string {
  const types = [type ?? []].flat();
  const firstType = types.find((each) => each !== "null") ?? types[0];
  if (firstType !== undefined) return String(firstType);
  if (properties !== undefined) return "object";
  return items === undefined ? "string" : "array";
}

const isNoNull = (option: unknown): boolean => weightOf(option) > 0;

/** Alternatives with nothing nested in them come before others. */
function weightOf(option: unknown): number {
  const { type, $ref } = objectOf(option);
  if (type === "null") return 0;
  return $ref === undefined && type !== "object" ? 1 : 2;
}

function numberOf(value: unknown, otherwise: number): number {
  return typeof value === "number" ? value : otherwise;
}

/**
 * The kinds of request fields, of which the schemas of this folder are made. {@link
 * TAKES} tells the API reference what a transform hides from zod.
 */
import { z } from "zod";
import { REQUEST_LIMITS } from "../limits.ts";
import { isJsonObject } from "../process/error_text.ts";

/**
 * Names end up in logs, headers and other people's terminals. Not `\P{Cc}`, which
 * languages of other clients do not know.
 */
const NO_CONTROLS = new RegExp(String.raw`^[^\u0000-\u001f\u007f-\u009f]*$`);
const IDENTIFIER = /^[a-zA-Z0-9_-]+$/;

/** The largest integer that JSON and JavaScript keep exactly. */
export const INTEGER_MAX = Number.MAX_SAFE_INTEGER;
/**
 * Marks the bounds of an integer, which zod does not distinguish from those of other
 * numbers.
 */
export const INTEGER = "an integer";

/** The zod schema of what a schema takes, for those that begin with `unknown`. */
export const TAKES = z.registry<{ schema: unknown }>();

/** A text of one line, possibly empty. */
export const plainText = z.string().regex(NO_CONTROLS, {
  error: "text without control characters",
});

/** A text of one line that is not empty: an id, a name. */
export const nameText = plainText.min(1);

/** The field `model` of every request. */
export const model = nameText.max(REQUEST_LIMITS.modelCharsMax)
  .describe("A model that `GET /v1/models` lists.");
/** A function or schema name by OpenAI's rule. */
export const identifier = z.string().min(1).max(REQUEST_LIMITS.nameCharsMax)
  .regex(IDENTIFIER, { error: `a string that matches '${IDENTIFIER.source}'` });
/**
 * An integer, bounds included. JSON's `1.0` is one too: JavaScript cannot tell the two
 * apart.
 */
export const integer = (min: number, max = INTEGER_MAX) =>
  z.int().min(min, { error: INTEGER }).max(max, { error: INTEGER });

/** A number, bounds included. */
export const decimal = (min: number, max: number) =>
  z.number().min(min).max(max);
/** A JSON Schema, whose content is not checked. */
export const anyObject = z.record(z.string(), z.unknown());

/** Converts a value with `read` before the schema checks it: form fields are text. */
export function readAs<T extends z.ZodType>(
  schema: T,
  read: (value: unknown) => unknown,
) {
  const reading = z.preprocess(read, schema);
  TAKES.add(reading, { schema });
  return reading;
}

/**
 * Treats null as absent in the members that a schema knows: SDKs of typed languages
 * send it. What the schema does not know stays as it is.
 */
export const nullable = <T extends z.ZodType>(schema: T) => {
  const names = new Set(memberNames(schema));
  return z.preprocess((value) => withoutNulls(value, names), schema);
};

/** The members that a schema of an object, or of several kinds of objects, knows. */
function memberNames(schema: unknown): string[] {
  if (schema instanceof z.ZodPipe) return memberNames(schema.in);
  if (schema instanceof z.ZodObject) return Object.keys(schema.shape);
  if (schema instanceof z.ZodDiscriminatedUnion) {
    return schema.options.flatMap(memberNames);
  }
  return [];
}

function withoutNulls(value: unknown, names: ReadonlySet<string>): unknown {
  if (!isJsonObject(value)) return value;
  const isLeftOut = (name: string) => value[name] === null && names.has(name);
  for (const name in value) {
    if (!isLeftOut(name)) continue;
    const members = Object.entries(value).filter(([name]) => !isLeftOut(name));
    return Object.fromEntries(members);
  }
  return value;
}

/** Where the first fault of a value goes, and the path from there to the value. */
interface FaultTarget {
  context: z.RefinementCtx;
  path: readonly PropertyKey[];
}

/** Checks a value with another schema and passes on the first fault. */
function checked<T extends z.ZodType>(
  schema: T,
  value: unknown,
  { context, path }: FaultTarget,
): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  if (issue !== undefined) {
    const whole = [...path, ...issue.path];
    context.issues.push({ ...issue, path: whole, input: undefined });
  }
  return z.NEVER;
}

/**
 * A list of `min` to `max` elements. Stops at the first fault: to collect all, as zod
 * does, would cost seconds for a million wrong elements.
 */
export function listOf<T extends z.ZodType>(element: T, max: number, min = 0) {
  const list = z.array(z.unknown()).min(min).max(max);
  return list.transform((items, context) => {
    const list: z.output<T>[] = [];
    for (const [index, item] of items.entries()) {
      list.push(checked(element, item, { context, path: [index] }));
      if (context.issues.length > 0) break;
    }
    return list;
  }).register(TAKES, { schema: z.array(element).min(min).max(max) });
}

/** A string or something else. A zod union would report the faults of both. */
export function stringOr<S extends z.ZodType, T extends z.ZodType>(
  text: S,
  other: T,
  otherName: string,
) {
  return z.unknown().transform((value, context): z.output<S> | z.output<T> => {
    if (typeof value === "string") {
      return checked(text, value, { context, path: [] });
    }
    if (typeof value === "object" && value !== null) {
      return checked(other, value, { context, path: [] });
    }
    const expected = `string or ${otherName}`;
    context.issues.push({ code: "invalid_type", expected, input: undefined });
    return z.NEVER;
  }).register(TAKES, { schema: z.union([text, other]) });
}

/** An object of which only the type is known. */
const typed = z.looseObject({ type: z.string().min(1) });

/**
 * An object whose schema depends on its `type`. Objects of other types pass as they
 * are: the model server decides about them.
 */
export function openUnion<Value extends { type: string }>(
  schemas: { readonly [type: string]: z.ZodType<Value> },
) {
  const other = typed.pipe(z.custom<Value>());
  return z.unknown().transform((value, context): Value => {
    const type = isJsonObject(value) ? value.type : undefined;
    const isKnown = typeof type === "string" && Object.hasOwn(schemas, type);
    const schema = isKnown ? schemas[type] : undefined;
    return checked(schema ?? other, value, { context, path: [] });
  }).register(TAKES, { schema: describedUnion(schemas) });
}

/** {@link openUnion} as the reference describes it: what it takes, type by type. */
function describedUnion(schemas: { readonly [type: string]: z.ZodType }) {
  const names = Object.keys(schemas).join("|");
  const other = z.looseObject({
    type: z.string().min(1).regex(new RegExp(`^(?!(?:${names})$)`)),
  });
  return z.union([...Object.values(schemas), other]);
}

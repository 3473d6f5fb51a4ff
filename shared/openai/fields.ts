import * as z from "zod";

/**
 * The building blocks of our zod schemas. Each carries the part of
 * OpenAI's error sentence that only it knows, such as "expected an integer" in
 * "Invalid type for 'n': expected an integer, but got a string instead.", so
 * that `request_fault.ts` can speak in OpenAI's manner without a table of paths.
 */

/** No NUL and no other control character: names end up in logs, headers and other people's terminals. */
const NO_CONTROLS = /^\P{Cc}*$/u;
const IDENTIFIER = /^[a-zA-Z0-9_-]+$/;

/** A member that may be absent or null; both mean "not given". */
export type Optional<T extends z.ZodType> = z.ZodOptional<z.ZodNullable<T>>;

/** Lets null stand for absence: SDKs of typed languages send explicit nulls. */
export function optional<T extends z.ZodType>(schema: T): Optional<T> {
  return schema.nullish();
}

/** Any text, also empty. */
export function text(): z.ZodString {
  return z.string({ error: "expected a string" });
}

/** Text without control characters. */
export function plainText(): z.ZodString {
  return text().regex(NO_CONTROLS, {
    error: "control characters are not allowed",
  });
}

/** Text that names something: not empty, no control characters. */
export function nameText(): z.ZodString {
  return plainText().min(1);
}

/** A function or schema name by OpenAI's rule. */
export function identifier(charsMax: number): z.ZodString {
  return text().min(1).max(charsMax).regex(IDENTIFIER, {
    error: "string does not match pattern. " +
      `Expected a string that matches the pattern '${IDENTIFIER.source}'`,
  });
}

/** A strict boolean: `"true"` and `1` are refused. */
export function flag(): z.ZodBoolean {
  return z.boolean({ error: "expected a boolean" });
}

/** A safe integer in `min..max`. JSON's `1.0` is an integer too: JavaScript cannot tell. */
export function integer(min: number, max: number): z.ZodInt {
  return z.int({ error: "expected an integer" })
    .min(min, { error: "integer" })
    .max(max, { error: "integer" });
}

/** A finite number in `min..max`. */
export function decimal(min: number, max: number): z.ZodNumber {
  return z.number({ error: "expected a decimal" })
    .min(min, { error: "decimal" })
    .max(max, { error: "decimal" });
}

/** A finite number above zero. */
export function positiveDecimal(): z.ZodNumber {
  return z.number({ error: "expected a decimal" })
    .positive({ error: "decimal" });
}

/** A JSON Schema, or any other object whose inside is the caller's own. */
export function anyObject(): z.ZodRecord<z.ZodString, z.ZodUnknown> {
  return z.record(z.string(), z.unknown(), { error: "expected an object" });
}

/** Bounds of {@link listOf}. */
export interface ListBounds {
  /** What is in it, as in "an array of objects". */
  of: string;
  min?: number;
  max: number;
}

/**
 * An array that is checked element by element and gives up at the first fault.
 * zod's own arrays collect every fault: a body with a million wrong elements
 * would cost seconds and a gigabyte to refuse.
 */
export function listOf<T extends z.ZodType>(
  element: T,
  bounds: ListBounds,
): z.ZodType<z.output<T>[]> {
  return z
    .array(z.unknown(), { error: `expected an array of ${bounds.of}` })
    .min(bounds.min ?? 0)
    .max(bounds.max)
    .transform((items, context) => {
      const checked: z.output<T>[] = [];
      for (let index = 0; index < items.length; index++) {
        const result = element.safeParse(items[index]);
        if (!result.success) {
          const issue = result.error.issues[0];
          if (issue !== undefined) {
            context.issues.push({
              ...issue,
              path: [index, ...issue.path],
              input: undefined,
            });
          }
          return z.NEVER;
        }
        checked.push(result.data);
      }
      return checked;
    });
}

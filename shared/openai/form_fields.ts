/**
 * How the fields of forms, and the members of JSON bodies that stand for them, are
 * read. A form has only texts; settings dialogs send empty ones for what nobody has
 * chosen.
 */
import { z } from "zod";
import { isJsonObject } from "../process/error_text.ts";
import { readAs } from "./fields.ts";

/** What a client sends for a model server, by name: it passes as it came. */
export interface Fields {
  readonly [name: string]: unknown;
}

/** Booleans as FastAPI reads them, in which most model servers are written. */
const TRUE = /^(true|1|yes|on|t|y)$/i;
const FALSE = /^(false|0|no|off|f|n)$/i;

/** A boolean, also as the text of a form: `True`, `TRUE`, `1`. */
export const flag = readAs(z.boolean(), (value) => {
  const text = String(value);
  if (typeof value === "object") return value;
  return TRUE.test(text) || (FALSE.test(text) ? false : value);
});

/** A number, also as text: `"1"`. */
export const numeric = <T extends z.ZodNumber>(schema: T) =>
  readAs(
    schema,
    (value) =>
      typeof value === "string" && value.trim() !== "" ? Number(value) : value,
  );

/** Anything: the model server decides. The type is that of OpenAI's description. */
export const anything = (type: "string" | "number") =>
  z.unknown().optional().meta({ type });

/**
 * Takes null and empty text for absent in the optional members that the schema knows.
 * What it does not know stays as it is.
 */
export function present<Shape extends z.core.$ZodLooseShape>(
  schema: z.ZodObject<Shape, z.core.$loose>,
) {
  const optional = new Set(
    Object.entries(schema.shape)
      .filter(([, member]) => z.safeParse(member, undefined).success)
      .map(([name]) => name),
  );
  const isAbsent = ([name, value]: [string, unknown]) =>
    value === null || (value === "" && optional.has(name));
  return z.preprocess((value) => {
    if (!isJsonObject(value)) return value;
    const entries = Object.entries(value);
    const isKept = (entry: [string, unknown]) =>
      !(Object.hasOwn(schema.shape, entry[0]) && isAbsent(entry));
    return entries.every(isKept)
      ? value
      : Object.fromEntries(entries.filter(isKept));
  }, schema);
}

/**
 * The members of a JSON body as fields of a form: of a list one for each value, of an
 * object its JSON.
 */
export function formFieldsOf(members: Fields): Fields {
  const fields: [string, unknown][] = [];
  for (const [name, value] of Object.entries(members)) {
    if (value === undefined || value === null) continue;
    if (Array.isArray(value)) fields.push([`${name}[]`, value.map(textOf)]);
    else fields.push([name, textOf(value)]);
  }
  return Object.fromEntries(fields);
}

const textOf = (value: unknown): string =>
  typeof value === "object" ? JSON.stringify(value) : String(value);

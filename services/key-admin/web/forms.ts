import { z } from "zod";
import type { ConsoleContext } from "./context.ts";
import { Refused } from "./refused.ts";
import { FORM_TOKEN } from "./session_guard.ts";

/** Every value of a form is text; a box that may be ticked several times is a list. */
type FormShape = Record<string, z.ZodType>;

const LISTS = ["scopes"];

/**
 * The posted form, with exactly the fields the page has. A field more, or one
 * twice, is not from our page: 400 (mass assignment, ASVS 15.3.3, API3).
 */
export function readForm<T extends FormShape>(
  c: ConsoleContext,
  shape: T,
): z.infer<z.ZodObject<T>> {
  const form = c.get("form");
  const names = [...new Set(form.keys())].filter((name) => name !== FORM_TOKEN);
  const values = names.map((name) => [name, valueOf(form, name)] as const);
  const parsed = z.strictObject(shape).safeParse(
    Object.fromEntries(values),
  );
  if (parsed.success) return parsed.data;
  throw new Refused(
    400,
    `The form is not one of this page: ${mistakeIn(parsed.error)}`,
  );
}

/** In words that do not repeat what was sent. */
function mistakeIn({ issues: [issue] }: z.ZodError): string {
  const field = `the field ${issue?.path[0] ? String(issue.path[0]) : ""}`;
  switch (issue?.code) {
    case "unrecognized_keys":
      return "it has a field too many";
    case "too_big":
      return `${field} is too long`;
    default:
      return `${field} is missing, or not as the page sends it`;
  }
}

function valueOf(form: URLSearchParams, name: string): string | string[] {
  const all = form.getAll(name);
  if (LISTS.includes(name)) return all;
  if (all.length > 1) {
    throw new Refused(400, `The form has the field ${name} more than once`);
  }
  return all[0] ?? "";
}

/** A line of text, checked for its meaning later. */
export const text = (charsMax: number): z.ZodString => z.string().max(charsMax);

/** A secret of ours, or its digest: 43 characters. */
export const secretText: z.ZodString = text(60);

/** An e-mail address, judged by `parseEmail`. */
export const emailText: z.ZodString = text(300);

/** A path of the console, judged by `localPath`. */
export const pathText: z.ZodString = text(300);

/** A box: `on` when ticked, else not there. */
export const box: z.ZodOptional<z.ZodLiteral<"on">> = z.literal("on")
  .optional();

/** The version of a key that the page was made from. */
export const version: z.ZodPipe<z.ZodString, z.ZodTransform<number, string>> = z
  .string().regex(/^\d{1,15}$/).transform(Number);

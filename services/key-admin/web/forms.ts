import { z } from "zod";
import { PASSWORD_CHARS_MAX } from "../domain/sign_in/password.ts";
import { type ConsoleContext, type ConsoleEnv, Refused } from "./context.ts";
import { FORM_TOKEN } from "./session.ts";
import type { MiddlewareHandler } from "hono";

/** How forms are read. */

/** Fields that may occur several times. */
const LISTS = ["scopes"];

/**
 * Reads the posted form. An unknown or repeated field is refused with 400 (mass
 * assignment, ASVS 15.3.3, API3).
 */
export function readForm<T extends Record<string, z.ZodType>>(
  c: ConsoleContext,
  shape: T,
): z.infer<z.ZodObject<T>> {
  const form = c.get("form");
  const names = [...new Set(form.keys())].filter((name) => name !== FORM_TOKEN);
  const parsed = z.strictObject(shape).safeParse(
    Object.fromEntries(names.map((name) => [name, valueOf(form, name)])),
  );
  if (parsed.success) return parsed.data;
  throw new Refused(400, `The form is not valid: ${mistakeIn(parsed.error)}`);
}

/** Describes the mistake without repeating what was sent. */
function mistakeIn({ issues: [issue] }: z.ZodError): string {
  const field = String(issue?.path[0] ?? "");
  switch (issue?.code) {
    case "unrecognized_keys":
      return "it has an unknown field";
    case "too_big":
      return `the field ${field} is too long`;
    default:
      return `the field ${field} is missing or malformed`;
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

/** A line of text, validated later. */
export const text = (charsMax: number): z.ZodString => z.string().max(charsMax);

/** A secret made by the console, or its digest: 43 characters. */
export const secretText: z.ZodString = text(60);

/** An e-mail address, checked by `parseEmail`. */
export const emailText: z.ZodString = text(300);

/** A path of the console, checked by `localPath`. */
export const pathText: z.ZodString = text(300);

/** A password; its length in characters is checked where it is hashed. */
export const passwordText: z.ZodString = text(PASSWORD_CHARS_MAX * 4);

/** A checkbox: `on` when ticked, else absent. */
export const box = z.literal("on").optional();

/** The version of the key that the page showed. */
export const version = z.string().regex(/^\d{1,15}$/).transform(Number);

const FORM_BYTES_MAX = 32 * 1024;
const FORM_MS = 10_000;

/**
 * Reads the posted form: one media type, bounded in size and time, valid UTF-8 (ASVS
 * 1.5.3). Other methods are left to the routes.
 */
export function formGuard(
  timeoutMs: number = FORM_MS,
): MiddlewareHandler<ConsoleEnv> {
  return async (c, next) => {
    if (c.req.method !== "POST") return await next();
    const type = (c.req.header("content-type") ?? "").split(";")[0]?.trim();
    if (type?.toLowerCase() !== "application/x-www-form-urlencoded") {
      throw new Refused(415, "The console accepts forms only");
    }
    const text = await readBody(c.req.raw, timeoutMs);
    c.set("form", new URLSearchParams(text));
    await next();
  };
}

async function readBody(request: Request, timeoutMs: number): Promise<string> {
  const reader = request.body?.getReader();
  if (reader === undefined) return "";
  let isLate = false;
  // Ends a pending read. It fails when the connection is already lost.
  const stop = () => void reader.cancel().catch(() => {});
  const timer = setTimeout(() => {
    isLate = true;
    stop();
  }, timeoutMs);
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (isLate) throw new Refused(408, "The form did not arrive in time");
      if (done) return text + decodeOrRefuse(() => decoder.decode());
      bytes += value.length;
      if (bytes > FORM_BYTES_MAX) {
        stop();
        throw new Refused(413, "The form is too large");
      }
      text += decodeOrRefuse(() => decoder.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
  }
}

function decodeOrRefuse(decode: () => string): string {
  try {
    return decode();
  } catch (cause) {
    throw new Refused(400, "The form is not valid UTF-8", { cause });
  }
}

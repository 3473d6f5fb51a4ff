import { createMiddleware } from "hono/factory";
import { z } from "zod";
import { graceSchema } from "../domain/keys/key_store.ts";
import {
  PASSWORD_CHARS_MAX,
  passwordChars,
} from "../domain/sign_in/password.ts";
import { type ConsoleContext, type ConsoleEnv, Refused } from "./context.ts";
import { FORM_TOKEN } from "./session.ts";

/**
 * Reads the posted form. An unknown or repeated field is refused with 400 (mass
 * assignment, ASVS 15.3.3, API3).
 */
export function readForm<T extends z.ZodType>(
  c: ConsoleContext,
  schema: T,
): z.infer<T> {
  const { form } = c.var;
  const names = new Set(form.keys());
  names.delete(FORM_TOKEN);
  const values = Array.from(names, (name) => [name, form.getAll(name)]);
  const parsed = schema.safeParse(Object.fromEntries(values));
  if (parsed.success) return parsed.data;
  // The message repeats nothing that was sent.
  const [{ code, path: [name] } = { code: null, path: [] }] =
    parsed.error.issues;
  const mistake = code === "unrecognized_keys"
    ? "The form has an unknown field"
    : `The field ${String(name)} is missing or malformed`;
  throw new Refused(400, `${mistake}. Reload the page and send it again`);
}

/** A field that occurs once, from which `schema` reads a value. */
const one = <T extends z.ZodType>(schema: T) =>
  z.tuple([schema]).transform(([value]) => value);

export const text = (charsMax: number) => one(z.string().max(charsMax));

export const list = (charsMax: number, most: number) =>
  z.array(z.string().max(charsMax)).max(most).default([]);

export const choice = <const T extends string>(values: readonly T[]) =>
  one(z.enum(values));

const ticked = one(z.literal("on"));
const box = ticked.optional().transform((on) => on !== undefined);
/** Enough for any secret that the console makes, and for any digest. */
const secret = text(60);

/** The fields of all forms but those of a key's settings. Each form picks its own. */
export const FORM = z.strictObject({
  /** Checked by `parseEmail`. */
  email: text(300),
  /** Longer ones are refused before any work (ASVS 6.2.9). Missing where the account has none. */
  password: one(
    z.string().refine((text) => passwordChars(text) <= PASSWORD_CHARS_MAX),
  ).default(""),
  /** Checked by `passwordProblem`. */
  new_password: text(PASSWORD_CHARS_MAX * 4),
  code: text(60),
  /** Checked by `localPath`. */
  next: text(300).default(""),
  session: secret,
  nonce: secret,
  /** The version of the key that the page showed. */
  version: one(z.string().regex(/^\d{1,15}$/)).transform(Number),
  /** When the old key of a rotation stops working. */
  old: one(graceSchema),
  sure: ticked,
  stop_running: box,
  end_others: box,
});

const FORM_BYTES_MAX = 32 * 1024;
const FORM_MS = 10_000;

/**
 * Reads the posted form: one media type, bounded in size and time, valid UTF-8 (ASVS
 * 1.5.3). Other methods are left to the routes.
 */
export const formGuard = (timeoutMs: number = FORM_MS) =>
  createMiddleware<ConsoleEnv>(async (c, next) => {
    if (c.req.method === "POST") {
      const [type = ""] = (c.req.header("content-type") ?? "").split(";");
      if (type.trim().toLowerCase() !== "application/x-www-form-urlencoded") {
        throw new Refused(415, "The console accepts forms only");
      }
      const body = await readBody(c.req.raw, timeoutMs);
      c.set("form", new URLSearchParams(body));
    }
    await next();
  });

const NOT_UTF8 =
  "The form is not valid UTF-8. Reload the page and send it again";
const TOO_LARGE =
  "The form is too large. Shorten its texts, or choose fewer models";
const TOO_SLOW =
  "The form did not arrive in time. Check your connection and send it again";

async function readBody({ body }: Request, timeoutMs: number) {
  let text = "";
  let bytes = 0;
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const sink = new WritableStream<Uint8Array>({
    write: (chunk) => {
      bytes += chunk.length;
      if (bytes > FORM_BYTES_MAX) throw new Refused(413, TOO_LARGE);
      text += decoder.decode(chunk, { stream: true });
    },
  });
  try {
    await body?.pipeTo(sink, { signal: AbortSignal.timeout(timeoutMs) });
    return text + decoder.decode();
  } catch (cause) {
    if (cause instanceof Refused) throw cause;
    throw cause instanceof TypeError
      ? new Refused(400, NOT_UTF8, { cause })
      : new Refused(408, TOO_SLOW, { cause });
  }
}

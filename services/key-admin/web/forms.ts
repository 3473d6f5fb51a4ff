import { createMiddleware } from "hono/factory";
import { z } from "zod";
import { graceSchema } from "../domain/keys/key_store.ts";
import * as password from "../domain/sign_in/password.ts";
import { wholeBody } from "../domain/try/edge.ts";
import { TRY_LIMITS } from "../domain/try/key.ts";
import { isTryKind, TRY_KINDS } from "../domain/try/request.ts";
import { isSecret } from "../domain/store/secret.ts";
import { type ConsoleContext, type ConsoleEnv, Refused } from "./context.ts";
import { findSignedIn } from "./session.ts";

/**
 * Reads the posted form. An unknown or repeated field is refused with 400 (mass
 * assignment, ASVS 15.3.3, API3).
 */
export function readForm<T extends z.ZodType>(c: ConsoleContext, schema: T) {
  const { form } = c.var;
  const values = Array.from(form.keys(), (name) => [name, form.getAll(name)]);
  const parsed = schema.safeParse(Object.fromEntries(values));
  if (parsed.success) return parsed.data;
  // The message repeats nothing that was sent.
  throw new Refused(
    400,
    "The form has a missing, malformed or unknown field. Reload the page and send it again",
  );
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
    z.string().refine((text) =>
      password.passwordChars(text) <= password.PASSWORD_CHARS_MAX
    ),
  ).default(""),
  /** Checked by `passwordProblem`. */
  new_password: text(password.PASSWORD_CHARS_MAX * 4),
  code: text(60),
  /** Checked by `localPath`. */
  next: text(300).default(""),
  session: secret,
  nonce: one(z.string().refine(isSecret)),
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
/** An upload of 8 MiB at 2 Mbit/s. */
const UPLOAD_MS = 40_000;
const NOT_UTF8 =
  "The form is not valid UTF-8. Reload the page and send it again";
const TOO_LARGE =
  `The form is too large. Shorten its texts, or choose fewer models or a file of at most ${
    TRY_LIMITS.heldBytes / 2 ** 20
  } MiB`;
const TOO_SLOW =
  "The form did not arrive in time. Check your connection and send it again";

/**
 * Reads the posted form: one media type, bounded in size and time, valid UTF-8 (ASVS
 * 1.5.3). Other methods are left to the routes. Only "Try it" takes a file, from
 * those who have signed in.
 */
export const formGuard = (timeoutMs: number = FORM_MS) =>
  createMiddleware<ConsoleEnv>(async (c, next) => {
    if (c.req.method === "POST") {
      const type = c.req.header("content-type") ?? "";
      const isOf = (name: string) =>
        type.split(";")[0]?.trim().toLowerCase() === name;
      const { kind = "" } = c.req.query();
      const takesFile = c.req.path === "/try" && isTryKind(kind) &&
        TRY_KINDS[kind].isUpload;
      if (takesFile && isOf("multipart/form-data")) {
        c.set("form", await readUpload(c, type));
      } else if (isOf("application/x-www-form-urlencoded")) {
        const body = await readBody(c, timeoutMs, FORM_BYTES_MAX);
        const text = orRefuse(400, NOT_UTF8, () => UTF8.decode(body));
        c.set("form", new URLSearchParams(await text));
      } else throw new Refused(415, "The console accepts forms only");
    }
    await next();
  });

/** The fields of a form with a file, of which the form gets the name. Those of strangers are not read: they are asked to sign in. */
async function readUpload(c: ConsoleContext, type: string) {
  const form = new URLSearchParams();
  if (await findSignedIn(c) === null) return form;
  const bytesMax = TRY_LIMITS.heldBytes + FORM_BYTES_MAX;
  const body = await readBody(c, UPLOAD_MS, bytesMax);
  const response = new Response(body, { headers: { "content-type": type } });
  const fields = orRefuse(400, NOT_UTF8, () => response.formData());
  for (const [name, value] of await fields) {
    const isFile = value instanceof File;
    if (isFile) c.set("file", value);
    form.append(name, isFile ? value.name : value);
  }
  return form;
}

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/** What `work` returns. If it fails, the form is refused with this message, unless it was refused already. */
async function orRefuse<T>(
  status: 400 | 408,
  message: string,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof Refused) throw cause;
    throw new Refused(status, message, { cause });
  }
}

const readBody = (c: ConsoleContext, timeoutMs: number, bytesMax: number) =>
  orRefuse(408, TOO_SLOW, () =>
    wholeBody(c.req.raw.body, {
      bytesMax,
      tooLarge: new Refused(413, TOO_LARGE),
      signal: AbortSignal.timeout(timeoutMs),
    }));

/** Posted forms: how they are read, within which bounds, and what their fields are. */

import { createMiddleware } from "hono/factory";
import { z } from "zod";
import { REASON_CHARS_MAX } from "../../domain/audit/audit_log.ts";
import { graceSchema } from "../../domain/keys/graces.ts";
import {
  PASSWORD_CHARS_MAX,
  passwordChars,
} from "../../domain/sign_in/password.ts";
import { wholeBody } from "../../domain/try/edge.ts";
import { TRY_LIMITS } from "../../domain/try/key.ts";
import { TRY_KINDS } from "../../domain/try/kinds.ts";
import { isTryKind } from "../../domain/try/request.ts";
import { isSecret } from "../../domain/store/secret.ts";
import { type ConsoleContext, type ConsoleEnv, Refused } from "../context.ts";
import { findSignedIn } from "./session.ts";
import { TrySeats } from "./try_seats.ts";

/**
 * Reads the posted form: a text for each field, or a list for a repeated one. An
 * unknown field, and a repeated one that is no list, is refused with 400 (mass
 * assignment, ASVS 15.3.3, API3).
 */
export function parseForm<T extends z.ZodType>(c: ConsoleContext, schema: T) {
  const { form } = c.var;
  const values = Array.from(form.keys(), (name) => {
    const texts = form.getAll(name);
    return [name, texts.length === 1 ? texts[0] : texts];
  });
  const parsed = schema.safeParse(Object.fromEntries(values));
  if (parsed.success) return parsed.data;
  // The message repeats nothing that was sent.
  throw new Refused(400, MALFORMED);
}

/** A field with a text of at most this many UTF-16 units. */
export const text = (charsMax: number) => z.string().max(charsMax);

/** A field that may be missing, or repeated up to `countMax` times. */
export const list = (charsMax: number, countMax: number) =>
  z.preprocess(
    (values) => [values ?? []].flat(),
    z.array(text(charsMax)).max(countMax),
  );

const ticked = z.literal("on");
const box = ticked.optional().transform((on) => on !== undefined);

/** The fields of all forms but those of a key's settings. Each form picks its own. */
export const FORM = z.strictObject({
  /** Checked by `parseEmail`. */
  email: text(300),
  /**
   * Longer ones are refused before any work (ASVS 6.2.9). Missing where the account has
   * none.
   */
  password: z.string().refine((text) =>
    passwordChars(text) <= PASSWORD_CHARS_MAX
  ).default(""),
  /** Checked by `passwordProblem`. */
  new_password: text(PASSWORD_CHARS_MAX * 4),
  code: text(60),
  /** Checked by `localPath`. */
  next: text(300).default(""),
  session: text(60),
  nonce: z.string().refine(isSecret),
  /** The version of the key on the page. */
  version: z.string().regex(/^\d{1,15}$/).transform(Number),
  /** When the old key of a rotation stops working. */
  old: graceSchema,
  /** Why an operator changes somebody else's key. */
  reason: z.string().trim().min(1).max(REASON_CHARS_MAX),
  sure: ticked,
  stop_running: box,
  end_others: box,
});

/** "Try it", for one's own account and for a project. */
const TRY_PATH = /^(\/projects\/[^/]+)?\/try$/;

const FORM_BYTES_MAX = 32 * 1024;
const FORM_MS = 10_000;
/** An upload of 8 MiB at 2 Mbit/s. */
const UPLOAD_MS = 40_000;
const MALFORMED =
  "The form has a missing, malformed or unknown field. Reload the page and send it again";
const NOT_UTF8 =
  "The form is not valid UTF-8. Reload the page and send it again";
const TOO_LARGE =
  `The form is too large. Shorten its texts, or choose fewer models or a file of at most ${
    TRY_LIMITS.heldBytes / 2 ** 20
  } MiB`;
const TOO_SLOW =
  "The form did not arrive in time. Check your connection and send it again";

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Reads the posted form, once for all handlers. Other methods are left to the routes. A
 * form to "Try it" takes a seat of its sender's account until it is answered; forms of
 * strangers take none, and their files are not read.
 */
export function formGuard(timeoutMs: number = FORM_MS) {
  const seats = new TrySeats(TRY_LIMITS);
  return createMiddleware<ConsoleEnv>(async (c, next) => {
    if (c.req.method !== "POST") return await next();
    const isUpload = isUploadOf(c);
    const isTry = TRY_PATH.test(c.req.path);
    const signedIn = isTry ? await findSignedIn(c) : null;
    using _seat = signedIn && seats.take(signedIn.session.ownerId);
    const isUnread = isUpload && signedIn === null;
    const form = isUnread
      ? new URLSearchParams()
      : await readPosted(c, { isUpload, timeoutMs });
    c.set("form", form);
    await next();
  });
}

/**
 * Whether the form has a file, as only "Try it" takes one. Throws a {@link Refused} for
 * any other media type than that of forms.
 */
function isUploadOf(c: ConsoleContext): boolean {
  const type = c.req.header("content-type") ?? "";
  const mediaType = type.split(";")[0]?.trim().toLowerCase();
  const { kind = "" } = c.req.query();
  const isUpload = mediaType === "multipart/form-data" &&
    TRY_PATH.test(c.req.path) && isTryKind(kind) &&
    TRY_KINDS[kind].isUpload === true;
  if (!isUpload && mediaType !== "application/x-www-form-urlencoded") {
    throw new Refused(415, "The console accepts forms only");
  }
  return isUpload;
}

/**
 * The fields of the body, bounded in size and time, valid UTF-8 (ASVS 1.5.3). The field
 * of a file has its name.
 */
async function readPosted(
  c: ConsoleContext,
  { isUpload, timeoutMs }: { isUpload: boolean; timeoutMs: number },
): Promise<URLSearchParams> {
  const body = await wholeBody(c.req.raw.body, {
    bytesMax: FORM_BYTES_MAX + (isUpload ? TRY_LIMITS.heldBytes : 0),
    tooLarge: new Refused(413, TOO_LARGE),
    signal: AbortSignal.timeout(isUpload ? UPLOAD_MS : timeoutMs),
  }).catch((cause) => {
    throw cause instanceof Refused
      ? cause
      : new Refused(408, TOO_SLOW, { cause });
  });
  try {
    if (!isUpload) return new URLSearchParams(UTF8.decode(body));
    const type = c.req.header("content-type") ?? "";
    const upload = new Response(body, { headers: { "content-type": type } });
    const form = new URLSearchParams();
    for (const [name, value] of await upload.formData()) {
      const isFile = value instanceof File;
      if (isFile) c.set("file", value);
      form.append(name, isFile ? value.name : value);
    }
    return form;
  } catch (cause) {
    throw new Refused(400, NOT_UTF8, { cause });
  }
}

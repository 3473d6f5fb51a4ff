import { z } from "zod";
import {
  KEY_SCOPES,
  type KeyScope,
  type Limits,
} from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";

/**
 * What an owner may choose about a key. The same rules hold for the console's
 * forms and for the command line; everything else of a key is made by the
 * system. Strict: an unknown member such as `ownerId` is an error (ASVS 15.3.3).
 */

/** The largest limits: numbers stay exact in Lua and readable in a table. */
export const LIMIT_VALUES = {
  requestsMax: 1_000_000,
  tokensMax: 1_000_000_000_000,
} as const;
const MODELS_MAX = 100;
const MODEL_ID = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$/;

/**
 * Controls, code points that are not characters, line separators, annotations, and
 * marks that change the direction of text.
 */
const FORBIDDEN =
  /[\p{Cc}\p{Cs}\p{Noncharacter_Code_Point}\uFFF9-\uFFFB\u2028\u2029\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/u;
/** Something visible: not only spaces, joiners and invisible letters (U+3164). */
const VISIBLE = /(?!\p{Default_Ignorable_Code_Point})[\p{L}\p{N}\p{P}\p{S}]/u;

const description = z.string()
  .transform((text) => text.normalize("NFC").trim())
  .refine((text) => VISIBLE.test(text), "Say what the key is for")
  .refine(
    (text) => [...text].length <= KEY_LIMITS.descriptionCharsMax,
    `At most ${KEY_LIMITS.descriptionCharsMax} characters`,
  )
  .refine(
    (text) => !FORBIDDEN.test(text),
    "Line breaks, control characters and text direction marks are not allowed",
  );

const limit = (max: number) =>
  z.int("A whole number; 0 means no limit").min(
    0,
    "Must not be negative; 0 means no limit",
  )
    .max(max, `At most ${max.toLocaleString("en")}`);

const scopes = z.array(
  z.enum(KEY_SCOPES, `Scopes are ${KEY_SCOPES.join(", ")}`),
)
  .min(1, "Choose at least one")
  .transform((chosen): KeyScope[] =>
    KEY_SCOPES.filter((scope) => chosen.includes(scope))
  );

const models = z.array(
  z.string().regex(
    MODEL_ID,
    "Model ids are letters, digits and . _ : / @ + -, at most 200 characters",
  ),
)
  .max(MODELS_MAX, `At most ${MODELS_MAX} models`)
  .transform((ids) => [...new Set(ids)]);

/** Limits of a key or an owner, 0 for none. */
export const limitsSchema = z.strictObject({
  requestsPerMinute: limit(LIMIT_VALUES.requestsMax),
  tokensPerMinute: limit(LIMIT_VALUES.tokensMax),
  tokensPerDay: limit(LIMIT_VALUES.tokensMax),
  concurrency: limit(LIMIT_VALUES.requestsMax),
});

/** The members of {@link Limits}. */
export const LIMIT_NAMES = [
  "requestsPerMinute",
  "tokensPerMinute",
  "tokensPerDay",
  "concurrency",
] as const;

/** Builds limits from a value for each. */
export const limitsOf = (valueOf: (name: keyof Limits) => number): Limits => ({
  requestsPerMinute: valueOf("requestsPerMinute"),
  tokensPerMinute: valueOf("tokensPerMinute"),
  tokensPerDay: valueOf("tokensPerDay"),
  concurrency: valueOf("concurrency"),
});

/** Everything an owner chooses, complete. */
export const settingsSchema = z.strictObject({
  description,
  scopes,
  models,
  limits: limitsSchema,
  /** Whole milliseconds since 1970. Whether it is in the future is checked elsewhere. */
  expiresAtMs: z.int().positive().nullable(),
});

/** Settings checked by {@link settingsSchema}. */
export type KeySettings = z.infer<typeof settingsSchema>;

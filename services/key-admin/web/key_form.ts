import {
  KEY_SCOPES,
  type KeyRecord,
  type Limits,
} from "@gateway/shared/keys/record";
import { z } from "zod";
import { type KeySettings, settingsSchema } from "../domain/keys/settings.ts";
import { text } from "./forms.ts";

/** The form of a key: what was typed, and its way to {@link KeySettings} and back. */
export interface KeyFormValues {
  description: string;
  expiry: string;
  expiryDate: string;
  scopes: readonly string[];
  models: string;
  rpm: string;
  tpm: string;
  tpd: string;
  concurrency: string;
}

/** What a field takes; what it means is judged by `settingsSchema`. */
export const FIELD_CHARS_MAX = {
  description: 1_000,
  date: 20,
  scope: 20,
  models: 30_000,
  limit: 20,
} as const;

const limitText = text(FIELD_CHARS_MAX.limit);

/** The fields the form has, beside its token. */
export const KEY_FORM_SHAPE = {
  description: text(FIELD_CHARS_MAX.description),
  expiry: z.enum(["keep", "never", "7d", "30d", "90d", "365d", "date"]),
  expiry_date: text(FIELD_CHARS_MAX.date).default(""),
  scopes: z.array(text(FIELD_CHARS_MAX.scope)).max(KEY_SCOPES.length).default(
    [],
  ),
  models: text(FIELD_CHARS_MAX.models),
  rpm: limitText,
  tpm: limitText,
  tpd: limitText,
  concurrency: limitText,
};

const posted = z.object(KEY_FORM_SHAPE);
type Posted = z.infer<typeof posted>;

/** Settings, or what was typed and what is wrong with it, by field. */
export type KeyFormResult =
  | { ok: true; settings: KeySettings }
  | { ok: false; values: KeyFormValues; errors: Map<string, string> };

const DAY_MS = 86_400_000;
const DAYS = { "7d": 7, "30d": 30, "90d": 90, "365d": 365 } as const;

/** A form for a new key: everything allowed, limited as `limits` say. */
export function newForm(limits: Limits): KeyFormValues {
  return {
    description: "",
    expiry: "never",
    expiryDate: "",
    scopes: KEY_SCOPES,
    models: "",
    ...limitFields(limits),
  };
}

/** The form filled in with what a key has. */
export function formOf(key: KeyRecord): KeyFormValues {
  return {
    description: key.description,
    expiry: key.expiresAtMs === null ? "never" : "keep",
    expiryDate: "",
    scopes: key.scopes,
    models: key.models.join(", "),
    ...limitFields(key.limits),
  };
}

/** No limit is an empty field. */
function limitFields(limits: Limits) {
  const field = (value: number) => value === 0 ? "" : String(value);
  return {
    rpm: field(limits.requestsPerMinute),
    tpm: field(limits.tokensPerMinute),
    tpd: field(limits.tokensPerDay),
    concurrency: field(limits.concurrency),
  };
}

/** Checks what was posted. `keptMs` is what "as it is" stands for. */
export function parseKeyForm(
  form: Posted,
  nowMs: number,
  keptMs: number | null,
): KeyFormResult {
  const errors = new Map<string, string>();
  const expiresAtMs = expiryOf(form, nowMs, keptMs);
  if (
    expiresAtMs !== null && form.expiry !== "keep" && !(expiresAtMs > nowMs)
  ) {
    errors.set("expiresAtMs", "Choose a day that is not over");
  }
  const parsed = settingsSchema.safeParse({
    description: form.description,
    scopes: form.scopes,
    models: form.models.split(/[\s,]+/).filter((id) => id !== ""),
    limits: {
      requestsPerMinute: limitOf(form.rpm),
      tokensPerMinute: limitOf(form.tpm),
      tokensPerDay: limitOf(form.tpd),
      concurrency: limitOf(form.concurrency),
    },
    expiresAtMs: Number.isNaN(expiresAtMs) ? null : expiresAtMs,
  });
  if (!parsed.success) {
    for (const { path, message } of parsed.error.issues) {
      const field = fieldOf(path);
      if (!errors.has(field)) errors.set(field, message);
    }
  }
  if (parsed.success && errors.size === 0) {
    return { ok: true, settings: parsed.data };
  }
  return { ok: false, values: typed(form), errors };
}

function expiryOf(
  { expiry, expiry_date }: Posted,
  nowMs: number,
  keptMs: number | null,
): number | null {
  switch (expiry) {
    case "keep":
      return keptMs;
    case "never":
      return null;
    case "date":
      return /^\d{4}-\d\d-\d\d$/.test(expiry_date)
        ? Date.parse(`${expiry_date}T23:59:59Z`)
        : NaN;
    default:
      return nowMs + DAYS[expiry] * DAY_MS;
  }
}

/**
 * A limit as people write it: `10000`, `10,000`, `10.000`, `10 000`, `10'000`. Groups
 * of three only, so that `1.5` is not taken for 15.
 */
export const LIMIT_PATTERN =
  "[0-9]{1,3}([,. '\u2019\u00A0\u202F][0-9]{3})+|[0-9]*";
/** {@link LIMIT_PATTERN} in words. */
export const LIMIT_FORM = "A whole number, such as 10,000";

const LIMIT = new RegExp(`^(?:${LIMIT_PATTERN})$`);

/** Empty is no limit. */
function limitOf(value: string): number {
  const text = value.trim();
  return LIMIT.test(text) ? Number(text.replace(/[^0-9]/g, "")) : NaN;
}

const FORM_FIELDS: Readonly<Record<string, string>> = {
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tpd",
  concurrency: "concurrency",
};

function fieldOf(path: readonly PropertyKey[]): string {
  const [first, second] = path.map(String);
  return first === "limits" ? FORM_FIELDS[second ?? ""] ?? "" : first ?? "";
}

function typed(form: Posted): KeyFormValues {
  const { description, expiry, expiry_date, scopes, models } = form;
  const { rpm, tpm, tpd, concurrency } = form;
  return {
    ...{ description, expiry, expiryDate: expiry_date, scopes, models },
    ...{ rpm, tpm, tpd, concurrency },
  };
}

import {
  KEY_SCOPES,
  type KeyRecord,
  type Limits,
} from "@gateway/shared/keys/record";
import { z } from "zod";
import { type KeySettings, settingsSchema } from "../domain/keys/settings.ts";
import { text } from "./forms.ts";

/** The form of a key: conversion between its fields and {@link KeySettings}. */

/** Upper bounds for the raw text; `settingsSchema` validates it. */
export const FIELD_CHARS_MAX = { limit: 20, models: 30_000 } as const;

const limitText = text(FIELD_CHARS_MAX.limit);

/** The fields of the form, except its token. */
export const KEY_FORM_SHAPE = {
  description: text(1_000),
  expiry: z.enum(["keep", "never", "7d", "30d", "90d", "365d", "date"]),
  expiry_date: text(20).default(""),
  scopes: z.array(text(20)).max(KEY_SCOPES.length).default([]),
  models: text(FIELD_CHARS_MAX.models),
  rpm: limitText,
  tpm: limitText,
  tpd: limitText,
  concurrency: limitText,
};

const posted = z.object(KEY_FORM_SHAPE);
export type KeyFormValues = z.infer<typeof posted>;

/** Settings, or what is wrong with the form by field. */
export type KeyFormResult =
  | { ok: true; settings: KeySettings }
  | { ok: false; errors: Map<string, string> };

const DAY_MS = 86_400_000;
const DAYS = { "7d": 7, "30d": 30, "90d": 90, "365d": 365 } as const;

/** The form for a new key: all scopes, the given limits. */
export const newForm = (limits: Limits): KeyFormValues => ({
  description: "",
  expiry: "never",
  expiry_date: "",
  scopes: [...KEY_SCOPES],
  models: "",
  ...limitFields(limits),
});

/** The form filled in with the settings of a key. */
export const formOf = (key: KeyRecord): KeyFormValues => ({
  description: key.description,
  expiry: key.expiresAtMs === null ? "never" : "keep",
  expiry_date: "",
  scopes: [...key.scopes],
  models: key.models.join(", "),
  ...limitFields(key.limits),
});

function limitFields(limits: Limits) {
  const field = (value: number) => value === 0 ? "" : String(value);
  return {
    rpm: field(limits.requestsPerMinute),
    tpm: field(limits.tokensPerMinute),
    tpd: field(limits.tokensPerDay),
    concurrency: field(limits.concurrency),
  };
}

/** Checks what was posted. `keptMs` is the expiry that "keep" stands for. */
export function parseKeyForm(
  form: KeyFormValues,
  nowMs: number,
  keptMs: number | null,
): KeyFormResult {
  const errors = new Map<string, string>();
  const expiresAtMs = expiryOf(form, nowMs, keptMs);
  if (
    expiresAtMs !== null && form.expiry !== "keep" && !(expiresAtMs > nowMs)
  ) {
    errors.set("expiry", "Choose today or a later day");
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
  if (parsed.success && errors.size === 0) {
    return { ok: true, settings: parsed.data };
  }
  for (const { path, message } of parsed.error?.issues ?? []) {
    const name = String(path[0] === "limits" ? path[1] : path[0]);
    const field = FIELDS[name] ?? name;
    if (!errors.has(field)) errors.set(field, message);
  }
  return { ok: false, errors };
}

/** Members of the settings whose form fields have other names. */
const FIELDS: Readonly<Record<string, string>> = {
  expiresAtMs: "expiry",
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tpd",
};

function expiryOf(
  { expiry, expiry_date }: KeyFormValues,
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

const LIMIT = new RegExp(`^(?:${LIMIT_PATTERN})$`);

/** Empty is no limit. */
function limitOf(value: string): number {
  const text = value.trim();
  return LIMIT.test(text) ? Number(text.replace(/[^0-9]/g, "")) : NaN;
}

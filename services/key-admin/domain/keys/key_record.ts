import {
  KEY_FIELDS,
  KEY_SCOPES,
  type KeyRecord,
  type Limits,
} from "@gateway/shared/keys/record";
import { z } from "zod";
import type { Fields } from "../store/redis.ts";
import { limitsOf, limitWords } from "./settings.ts";

/** Whether a key has expired: every edge then refuses it, whatever its state. */
export function isExpired(key: KeyRecord, nowMs: number): boolean {
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs;
}

/** The given members as fields of `key:{owner}:<key id>`, flat as HSET takes them. */
export function encodeKey(key: Partial<KeyRecord>): string[] {
  const values: Record<string, unknown> = {
    ...key,
    ...key.limits,
    expiresAtMs: key.expiresAtMs === null ? 0 : key.expiresAtMs,
  };
  // Text of a list is its items, joined by commas.
  return Object.entries(KEY_FIELDS).flatMap(([member, field]) =>
    values[member] === undefined ? [] : [field, String(values[member])]
  );
}

const whole = z.coerce.number().int().nonnegative();
const list = z.string().transform((text) => text === "" ? [] : text.split(","));

const keyFields = z.object({
  [KEY_FIELDS.state]: z.enum(["enabled", "disabled"]),
  [KEY_FIELDS.description]: z.string(),
  [KEY_FIELDS.hint]: z.string(),
  [KEY_FIELDS.hash]: z.string(),
  [KEY_FIELDS.scopes]: list.pipe(z.array(z.enum(KEY_SCOPES))),
  [KEY_FIELDS.models]: list,
  [KEY_FIELDS.createdAtMs]: whole,
  [KEY_FIELDS.expiresAtMs]: whole,
  [KEY_FIELDS.version]: whole,
});

/** The record in the fields of a hash. Throws when it is damaged. */
export function decodeKey(
  { keyId, ownerId }: { keyId: string; ownerId: string },
  fields: Fields,
): KeyRecord {
  const { created_at, expires_at, ...stored } = keyFields.parse(fields);
  return {
    ...stored,
    id: keyId,
    ownerId,
    limits: decodeLimits(fields),
    createdAtMs: created_at,
    expiresAtMs: expires_at === 0 ? null : expires_at,
  };
}

/** The limits of a key or an owner. An owner without any has no hash, hence no fields. */
export function decodeLimits(fields: Fields): Limits {
  return limitsOf((name) => whole.parse(fields[KEY_FIELDS[name]] ?? 0));
}

/** The differences, for the audit log: `description "a" → "b", tokens per day 0 → 5000`. */
export const describeChange = (before: KeyRecord, after: KeyRecord): string =>
  differences(settingTexts(before), settingTexts(after));

/** The same for the limits of an owner. */
export const describeLimits = (before: Limits, after: Limits): string =>
  differences(limitTexts(before), limitTexts(after));

type Texts = Readonly<Record<string, string>>;

const differences = (before: Texts, after: Texts): string =>
  Object.entries(after)
    .filter(([name, to]) => before[name] !== to)
    .map(([name, to]) => `${name} ${before[name]} → ${to}`).join(", ");

const limitTexts = (limits: Limits): Texts =>
  Object.fromEntries(
    Object.entries(limits)
      .map(([name, value]) => [limitWords(name, " "), String(value)]),
  );

const settingTexts = (
  { description, scopes, models, limits, expiresAtMs }: KeyRecord,
): Texts => ({
  description: JSON.stringify(description),
  scopes: scopes.join("+"),
  models: models.join("+") || "all",
  ...limitTexts(limits),
  expires: expiresAtMs === null ? "never" : minuteText(expiresAtMs),
});

/** `2026-11-20 13:53 UTC` */
const minuteText = (ms: number): string =>
  `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")} UTC`;

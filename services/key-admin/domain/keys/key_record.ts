/** Reads and writes the record of a key in Redis, and describes changes of it. */
import {
  KEY_FIELDS,
  KEY_PRIORITIES,
  KEY_SCOPES,
  type KeyRecord,
  type Limits,
  type Principal,
} from "@gateway/shared/keys/record";
import { endUsersText, parseEndUsers } from "@gateway/shared/keys/end_user";
import { networkText } from "@gateway/shared/keys/networks";
import { z } from "zod";
import type { Fields } from "../store/redis.ts";
import { endUsersWords } from "./end_users.ts";
import { limitsOf, namedLimits } from "./settings.ts";

/** Whether a key has expired: then every edge refuses it, whatever its state. */
export const isExpired = ({ expiresAtMs }: KeyRecord, nowMs: number) =>
  expiresAtMs !== null && expiresAtMs <= nowMs;

/** Some members of a key, and some of its limits. */
type KeyMembers =
  & Partial<Omit<KeyRecord, "limits">>
  & { limits?: Partial<Limits> };

/** These members as fields of `key:{owner}:<key id>`, flat as HSET takes them. */
export function encodeKey(key: KeyMembers): string[] {
  const values: Record<string, unknown> = {
    ...key,
    ...key.limits,
    ...key.endUsers !== undefined && { endUsers: endUsersText(key.endUsers) },
  };
  // The text of a list is its items, joined by commas.
  return Object.entries(KEY_FIELDS).flatMap(([member, field]) =>
    values[member] === undefined ? [] : [field, String(values[member] ?? 0)]
  );
}

const whole = z.coerce.number().int().nonnegative();
const list = z.string().transform((text) => text === "" ? [] : text.split(","));

/** Records of earlier versions name no other key. */
const keyName = z.string().default("0")
  .transform((text) => text === "0" ? null : text.split(","))
  .pipe(z.tuple([z.string(), z.string()]).nullable());

const members = z.object({
  state: z.enum(["enabled", "disabled"]),
  description: z.string(),
  hint: z.string(),
  hash: z.string(),
  scopes: list.pipe(z.array(z.enum(KEY_SCOPES))),
  models: list,
  // Records of earlier versions have none.
  networks: z.string().default("").pipe(list),
  endUsers: z.string().default("").transform(parseEndUsers),
  priority: z.enum(KEY_PRIORITIES).default("normal"),
  keepSeconds: whole.default(0),
  createdAtMs: whole,
  expiresAtMs: whole.transform((ms) => ms === 0 ? null : ms),
  createdBy: z.string().default("0")
    .transform((text) => text === "0" ? null : text),
  replaces: keyName,
  replacedBy: keyName,
  version: whole,
});

/** The record in the fields of a hash. Throws when it is damaged. */
export function decodeKey(
  { keyId, ownerId }: Principal,
  fields: Fields,
): KeyRecord {
  const texts = Object.entries(KEY_FIELDS)
    .map(([member, field]) => [member, fields[field]]);
  const decoded = members.parse(Object.fromEntries(texts));
  return { ...decoded, id: keyId, ownerId, limits: decodeLimits(fields) };
}

/**
 * The limits of a key or an owner. An owner without any has no hash, hence no fields.
 */
export const decodeLimits = (fields: Fields): Limits =>
  limitsOf((name) => whole.parse(fields[KEY_FIELDS[name]] ?? 0));

/**
 * The differences, for the audit log: `description "a" → "b", tokens per day 0 → 5000`.
 */
export const describeChange = (before: KeyRecord, after: KeyRecord): string =>
  differences(settingTexts(before), settingTexts(after));

/** The same for the limits of an owner. */
export const describeLimits = (before: Limits, after: Limits): string =>
  differences(namedLimits(before, " "), namedLimits(after, " "));

type Texts = Readonly<Record<string, string | number>>;

const differences = (before: Texts, after: Texts): string =>
  Object.entries(after)
    .filter(([name, to]) => before[name] !== to)
    .map(([name, to]) => `${name} ${before[name]} → ${to}`).join(", ");

const settingTexts = (
  { description, scopes, models, networks, limits, expiresAtMs, ...more }:
    KeyRecord,
): Texts => ({
  description: JSON.stringify(description),
  scopes: scopes.join("+"),
  models: models.join("+") || "all",
  "allowed networks": networks.map(networkText).join("+") || "all",
  "end users": endUsersWords(more.endUsers) || "none",
  priority: more.priority,
  "answers kept for seconds": more.keepSeconds,
  ...namedLimits(limits, " "),
  expires: expiresAtMs === null ? "never" : minuteText(expiresAtMs),
});

/** Writes a time to the minute: `2026-11-20 13:53 UTC`. */
export const minuteText = (ms: number): string =>
  `${new Date(ms).toISOString().slice(0, 16).replace("T", " ")} UTC`;

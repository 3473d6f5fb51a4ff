import { z } from "zod";
import {
  KEY_FIELDS,
  KEY_SCOPES,
  type KeyRecord,
  type Limits,
} from "@gateway/shared/keys/record";
import { searchWordsOf } from "./search_terms.ts";

/** Beside {@link KEY_FIELDS}: the words a key is found by, which a search filters on. */
const WORDS_FIELD = "words";

/** The fields of `key:{owner}:<key id>`, flat as HSET wants them. Complete: an edit writes all of them. */
export function encodeKey(key: KeyRecord): string[] {
  const f = KEY_FIELDS;
  return [
    ...[f.state, key.state],
    ...[f.description, key.description],
    ...[f.hint, key.hint],
    ...[f.hash, key.hash],
    ...[f.scopes, key.scopes.join(",")],
    ...[f.models, key.models.join(",")],
    ...[f.createdAtMs, String(key.createdAtMs)],
    ...[f.expiresAtMs, String(key.expiresAtMs ?? 0)],
    ...[f.version, String(key.version)],
    ...encodeLimits(key.limits),
    ...[WORDS_FIELD, ` ${searchWordsOf(key).join(" ")}`],
  ];
}

/** The limit fields, which `own:{owner}` has too. */
export function encodeLimits(limits: Limits): string[] {
  const f = KEY_FIELDS;
  return [
    ...[f.requestsPerMinute, String(limits.requestsPerMinute)],
    ...[f.tokensPerMinute, String(limits.tokensPerMinute)],
    ...[f.tokensPerDay, String(limits.tokensPerDay)],
    ...[f.concurrency, String(limits.concurrency)],
  ];
}

const whole = z.coerce.number().int().nonnegative();
const list = z.string().transform((text) => text === "" ? [] : text.split(","));

const limitFields = {
  [KEY_FIELDS.requestsPerMinute]: whole.default(0),
  [KEY_FIELDS.tokensPerMinute]: whole.default(0),
  [KEY_FIELDS.tokensPerDay]: whole.default(0),
  [KEY_FIELDS.concurrency]: whole.default(0),
};

const limitsRecord = z.object(limitFields);

const keyRecord = z.object({
  [KEY_FIELDS.state]: z.enum(["enabled", "disabled"]),
  [KEY_FIELDS.description]: z.string(),
  [KEY_FIELDS.hint]: z.string(),
  [KEY_FIELDS.hash]: z.string(),
  [KEY_FIELDS.scopes]: list.pipe(z.array(z.enum(KEY_SCOPES))),
  [KEY_FIELDS.models]: list,
  [KEY_FIELDS.createdAtMs]: whole,
  [KEY_FIELDS.expiresAtMs]: whole,
  [KEY_FIELDS.version]: whole,
  ...limitFields,
});

/** The record behind HGETALL's fields. Throws when it is damaged. */
export function decodeKey(
  ids: { keyId: string; ownerId: string },
  fields: ReadonlyMap<string, string>,
): KeyRecord {
  const stored = keyRecord.parse(Object.fromEntries(fields));
  return {
    id: ids.keyId,
    ownerId: ids.ownerId,
    state: stored.state,
    description: stored.description,
    hint: stored.hint,
    hash: stored.hash,
    scopes: stored.scopes,
    models: stored.models,
    limits: toLimits(stored),
    createdAtMs: stored.created_at,
    expiresAtMs: stored.expires_at === 0 ? null : stored.expires_at,
    version: stored.version,
  };
}

/** The owner's limits. An owner without any has no hash, hence no fields. */
export function decodeLimits(fields: ReadonlyMap<string, string>): Limits {
  return toLimits(limitsRecord.parse(Object.fromEntries(fields)));
}

function toLimits(stored: z.infer<typeof limitsRecord>): Limits {
  return {
    requestsPerMinute: stored.rpm,
    tokensPerMinute: stored.tpm,
    tokensPerDay: stored.tpd,
    concurrency: stored.conc,
  };
}

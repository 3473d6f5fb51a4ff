import type { RedisLink } from "@gateway/shared/redis/link";

/** Reads untyped Redis replies, and throws when a reply has another form. */

/** A bulk string. */
export function asText(reply: unknown): string {
  if (typeof reply === "string") return reply;
  throw new Error(`Unexpected reply of Redis: ${typeof reply}, not text`);
}

/** A bulk string, or null where Redis has nothing. */
export const asTextOrNull = (reply: unknown): string | null =>
  reply === null ? null : asText(reply);

/** An integer, or decimal text as scripts and hashes give it. */
export function asNumber(reply: unknown): number {
  const value = typeof reply === "number" ? reply : Number(asText(reply));
  if (Number.isFinite(value)) return value;
  throw new Error(`Unexpected reply of Redis: ${reply}, not a number`);
}

/** An array of anything. */
export function asList(reply: unknown): unknown[] {
  if (Array.isArray(reply)) return reply;
  throw new Error(`Unexpected reply of Redis: ${typeof reply}, not a list`);
}

/** An array of bulk strings. */
export const asTexts = (reply: unknown): string[] => asList(reply).map(asText);

/** `[field, value, field, value]`, as HGETALL and streams give it. */
export function asFields(reply: unknown): Map<string, string> {
  const flat = asTexts(reply);
  const fields = new Map<string, string>();
  for (let at = 0; at + 1 < flat.length; at += 2) {
    fields.set(flat[at] ?? "", flat[at + 1] ?? "");
  }
  return fields;
}

/** The fields of a hash; none when there is no such key. */
export async function readHash(
  redis: RedisLink,
  key: string,
): Promise<Map<string, string>> {
  return asFields(await redis.command(["HGETALL", key]));
}

/** The text under a key, or null. */
export async function readText(
  redis: RedisLink,
  key: string,
): Promise<string | null> {
  return asTextOrNull(await redis.command(["GET", key]));
}

import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";

/** Reads untyped Redis replies, and throws when a reply has an unexpected type. */

const text = z.string();
const texts = z.array(text);

/** A bulk string. */
export const asText = (reply: unknown): string => text.parse(reply);

/** A bulk string, or null where Redis has nothing. */
export const asTextOrNull = (reply: unknown): string | null =>
  reply === null ? null : asText(reply);

/** An integer, or decimal text as scripts and hashes return it. */
export const asNumber = (reply: unknown): number =>
  z.number().parse(typeof reply === "number" ? reply : Number(asText(reply)));

/** An array of anything. */
export const asList = (reply: unknown): unknown[] =>
  z.array(z.unknown()).parse(reply);

/** An array of bulk strings. */
export const asTexts = (reply: unknown): string[] => texts.parse(reply);

/** `[field, value, field, value]`, as HGETALL and streams return it. */
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

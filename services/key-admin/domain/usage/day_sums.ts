/**
 * The sums of the parts of a whole since counting began, at the end of each UTC day:
 * the keys of an account, and the accounts of the gateway. What they used between two
 * days is a difference, so a year of many keys takes two reads.
 */
import { isJsonObject } from "@gateway/shared/process/error_text";
import { COUNTS, type Counts } from "../keys/usage.ts";
import type { RedisLink } from "@gateway/shared/redis/link";
import { readHash, readText } from "../store/redis.ts";

/** Stands for the account whose parts are all accounts. */
export const GATEWAY = "gateway";
/** The last UTC day whose sums are there, as `yyyymmdd`. */
export const SUMMED_KEY = "usage:summed";
/** Exists while a key-admin is adding up. */
export const SUMMING_KEY = "usage:summing";

/** The sums of the parts of a whole at the end of a UTC day. */
export const sumsKey = (wholeId: string, day: string): string =>
  `used:{${wholeId}}:${day}`;

/** The sums of a part, as they are stored. */
export const encodeSums = (counts: Counts): string => JSON.stringify(counts);

/** Reads what {@link encodeSums} wrote. Counts of later versions are left out. */
export function decodeSums(text: string): Counts {
  const stored: unknown = JSON.parse(text);
  if (!isJsonObject(stored)) {
    throw new TypeError(`Not the sums of a part: ${text}`);
  }
  const counts: Counts = {};
  for (const name of COUNTS) {
    const { [name]: count } = stored;
    if (typeof count === "number") counts[name] = count;
  }
  return counts;
}

/** The sums of all parts at the end of a UTC day, by their id. */
export async function readSums(
  redis: RedisLink,
  wholeId: string,
  day: string,
): Promise<Map<string, Counts>> {
  const stored = await readHash(redis, sumsKey(wholeId, day)) ?? {};
  return new Map(
    Object.entries(stored).map(([id, text]) => [id, decodeSums(text)]),
  );
}

/** The last UTC day whose sums are there; empty: none is yet. */
export const lastSummedDay = async (redis: RedisLink): Promise<string> =>
  await readText(redis, SUMMED_KEY) ?? "";

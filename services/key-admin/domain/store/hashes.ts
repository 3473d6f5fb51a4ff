/** Reads many hashes of one account in a few calls. */
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import pLimit from "p-limit";
import { z } from "zod";
import hashesLua from "./lua/hashes.lua" with { type: "text" };

const HASHES_SCRIPT = defineScript("key-admin/hashes", hashesLua, {});

/** Hashes that one call reads whole: those of usage may have thousands of fields. */
const WHOLE_AT_ONCE = 10;
/** Calls at the same time, after which others get their turn in Redis. */
const CALLS = 4;
/** Hashes of which one call reads some fields. */
const PARTS_AT_ONCE = 100;

const whole = z.array(z.array(z.string()));
const parts = z.array(z.array(z.string().nullable()));

/** Reads hashes: `[field, value, field, value]` of each, empty if there is none. */
export async function readHashes(
  redis: RedisLink,
  keys: readonly string[],
): Promise<string[][]> {
  const read = async (some: readonly string[]) =>
    whole.parse(await redis.evalScript(HASHES_SCRIPT, { keys: some }));
  const batches = inBatches(keys, WHOLE_AT_ONCE);
  return (await pLimit(CALLS).map(batches, read)).flat();
}

/** Reads these fields of hashes: their values, null for those that are not there. */
export async function readFields(
  redis: RedisLink,
  keys: readonly string[],
  fields: readonly string[],
): Promise<(string | null)[][]> {
  const read = async (some: readonly string[]) => {
    const call = { keys: some, args: fields };
    return parts.parse(await redis.evalScript(HASHES_SCRIPT, call));
  };
  const batches = inBatches(keys, PARTS_AT_ONCE);
  return (await pLimit(CALLS).map(batches, read)).flat();
}

/** Cuts a list into parts of this many entries, of which the last may have fewer. */
export const inBatches = <T>(list: readonly T[], size: number): T[][] =>
  Array.from(
    { length: Math.ceil(list.length / size) },
    (_, at) => list.slice(at * size, (at + 1) * size),
  );

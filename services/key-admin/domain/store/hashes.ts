/** Reads many hashes of one account in a few calls. */
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import hashesLua from "./lua/hashes.lua" with { type: "text" };

const HASHES_SCRIPT = defineScript("key-admin/hashes", hashesLua, {});

/** Hashes that one call reads whole: those of usage may have thousands of fields. */
const WHOLE_AT_ONCE = 10;
/** Hashes of which one call reads some fields. */
const PARTS_AT_ONCE = 100;

const whole = z.array(z.array(z.string()));
const parts = z.array(z.array(z.string().nullable()));

/** Reads hashes: `[field, value, field, value]` of each, empty if there is none. */
export async function readHashes(
  redis: RedisLink,
  keys: readonly string[],
): Promise<string[][]> {
  const hashes: string[][] = [];
  for (let at = 0; at < keys.length; at += WHOLE_AT_ONCE) {
    const call = { keys: keys.slice(at, at + WHOLE_AT_ONCE) };
    hashes.push(...whole.parse(await redis.evalScript(HASHES_SCRIPT, call)));
  }
  return hashes;
}

/** Reads these fields of hashes: their values, null for those that are not there. */
export async function readFields(
  redis: RedisLink,
  keys: readonly string[],
  fields: readonly string[],
): Promise<(string | null)[][]> {
  const values: (string | null)[][] = [];
  for (let at = 0; at < keys.length; at += PARTS_AT_ONCE) {
    const call = { keys: keys.slice(at, at + PARTS_AT_ONCE), args: fields };
    values.push(...parts.parse(await redis.evalScript(HASHES_SCRIPT, call)));
  }
  return values;
}

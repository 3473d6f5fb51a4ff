/** The usage of each key of an account, and of each member who created keys. */
import { KEY_FIELDS, keysKey, recordKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { addCounts, type Counts, sumOf } from "../keys/usage.ts";
import { readFields } from "../store/hashes.ts";
import { asTexts } from "../store/redis.ts";
import type { UsageSpan } from "./span.ts";
import { sizeOf, type UsageReports } from "./usage_reports.ts";

/** A key and its usage. */
export interface KeyUse {
  readonly id: string;
  readonly description: string;
  readonly hint: string;
  /** The id of the owner who created it; empty if it is not recorded. */
  readonly createdBy: string;
  readonly counts: Counts;
}

/**
 * The keys of an account that were used, the most used first. Only those that
 * `createdBy` created, if given.
 */
export async function readUsageByKey(
  { redis, usage }: { redis: RedisLink; usage: Pick<UsageReports, "parts"> },
  { ownerId, createdBy }: { ownerId: string; createdBy?: string | undefined },
  span: UsageSpan,
): Promise<KeyUse[]> {
  const all = await namedKeys(redis, ownerId);
  const keys = all.filter((key) =>
    createdBy === undefined || key.createdBy === createdBy
  );
  const ids = keys.map(({ id }) => id);
  const used = await usage.parts({ ownerId }, span, ids);
  return keys.flatMap((key) => {
    const counts = used.get(key.id);
    return counts === undefined ? [] : [{ ...key, counts }];
  }).sort((a, b) => sizeOf(b.counts) - sizeOf(a.counts));
}

const { description, hint, createdBy } = KEY_FIELDS;

/** The keys of an account, of which only what tables show is read. */
async function namedKeys(
  redis: RedisLink,
  ownerId: string,
): Promise<Omit<KeyUse, "counts">[]> {
  const list = ["ZREVRANGE", keysKey(ownerId), "0", "-1"];
  const ids = asTexts(await redis.command(list));
  const records = ids.map((keyId) => recordKey({ ownerId, keyId }));
  const fields = [description, hint, createdBy];
  const values = await readFields(redis, records, fields);
  return ids.map((id, at) => {
    const [text, end, creator] = values[at] ?? [];
    return {
      id,
      description: text ?? "",
      hint: end ?? "",
      createdBy: creator === "0" ? "" : creator ?? "",
    };
  });
}

/** Returns the usage of the keys that each owner created, by the owner's id. */
export function useByMember(keys: readonly KeyUse[]): Map<string, Counts> {
  const members = new Map<string, Counts>();
  for (const { createdBy, counts } of keys) {
    addCounts(sumOf(members, createdBy), counts);
  }
  return members;
}

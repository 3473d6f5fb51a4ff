/** The usage of each key of an account, and of each member who created keys. */
import { KEY_FIELDS } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { isCreatedBy, keysFrom } from "../keys/key_page.ts";
import { addCounts, type Counts, sumOf } from "../keys/usage.ts";
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
  const keys: Omit<KeyUse, "counts">[] = [];
  for await (const { keyId, fields } of keysFrom(redis, ownerId)) {
    if (createdBy && !isCreatedBy(fields, createdBy)) continue;
    const creator = fields[KEY_FIELDS.createdBy] ?? "0";
    keys.push({
      id: keyId,
      description: fields[KEY_FIELDS.description] ?? "",
      hint: fields[KEY_FIELDS.hint] ?? "",
      createdBy: creator === "0" ? "" : creator,
    });
  }
  const ids = keys.map(({ id }) => id);
  const used = await usage.parts({ ownerId }, span, ids);
  return keys.flatMap((key) => {
    const counts = used.get(key.id);
    return counts === undefined ? [] : [{ ...key, counts }];
  }).sort((a, b) => sizeOf(b.counts) - sizeOf(a.counts));
}

/** Returns the usage of the keys that each owner created, by the owner's id. */
export function useByMember(keys: readonly KeyUse[]): Map<string, Counts> {
  const members = new Map<string, Counts>();
  for (const { createdBy, counts } of keys) {
    addCounts(sumOf(members, createdBy), counts);
  }
  return members;
}

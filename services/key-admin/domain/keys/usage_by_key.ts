/** The usage of each key of an account, and of each member who created keys. */
import { KEY_FIELDS } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import pLimit from "p-limit";
import { isCreatedBy, keysFrom } from "./key_page.ts";
import { COUNTS, type Counts, readUsage, type UsageRange } from "./usage.ts";

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
 * The most keys that are read for a page: 3,000 hashes of a month. Files have all keys.
 */
export const KEYS_SHOWN_MAX = 100;
const READS = 10;

/**
 * The keys of an account with their use, the most used first; null if there are more
 * than `KEYS_SHOWN_MAX`. Only those that `createdBy` created, if given.
 */
export async function readUsageByKey(
  redis: RedisLink,
  { ownerId, createdBy }: { ownerId: string; createdBy?: string | undefined },
  time: { range: UsageRange; nowMs: number },
): Promise<KeyUse[] | null> {
  const keys: Omit<KeyUse, "counts">[] = [];
  for await (const { keyId, fields } of keysFrom(redis, ownerId)) {
    if (createdBy && !isCreatedBy(fields, createdBy)) continue;
    if (keys.length === KEYS_SHOWN_MAX) return null;
    const creator = fields[KEY_FIELDS.createdBy] ?? "0";
    keys.push({
      id: keyId,
      description: fields[KEY_FIELDS.description] ?? "",
      hint: fields[KEY_FIELDS.hint] ?? "",
      createdBy: creator === "0" ? "" : creator,
    });
  }
  const place = pLimit(READS);
  const used = await Promise.all(
    keys.map((key) =>
      place(async (): Promise<KeyUse> => {
        const { total } = await readUsage(
          redis,
          { ownerId, keyId: key.id },
          time,
        );
        return { ...key, counts: total };
      })
    ),
  );
  return used.filter(({ counts }) => isUsed(counts))
    .sort((a, b) => (b.counts.requests ?? 0) - (a.counts.requests ?? 0));
}

/**
 * Returns the usage of the account that is not that of these keys: of deleted keys, and
 * of those left out.
 */
export function restOfUse(total: Counts, keys: readonly KeyUse[]): Counts {
  const rest: Counts = {};
  for (const name of COUNTS) {
    const ofKeys = keys.reduce(
      (sum, { counts }) => sum + (counts[name] ?? 0),
      0,
    );
    // More may have been counted since the sum was read.
    rest[name] = Math.max(0, (total[name] ?? 0) - ofKeys);
  }
  return rest;
}

/** Returns the usage of the keys that each owner created, by the owner's id. */
export function useByMember(keys: readonly KeyUse[]): Map<string, Counts> {
  const members = new Map<string, Counts>();
  for (const { createdBy, counts } of keys) {
    const sum = members.get(createdBy) ?? {};
    for (const name of COUNTS) {
      sum[name] = (sum[name] ?? 0) + (counts[name] ?? 0);
    }
    members.set(createdBy, sum);
  }
  return members;
}

/** Whether anything was counted. */
export const isUsed = (counts: Counts): boolean =>
  COUNTS.some((name) => counts[name]);

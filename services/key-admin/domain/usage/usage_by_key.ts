/** The usage of keys, of an account or of all, and of members who created keys. */
import { KEY_FIELDS, keysKey, recordKey } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { addCounts, type Counts, sumOf } from "../keys/usage.ts";
import { readFields } from "../store/hashes.ts";
import { asTexts } from "../store/redis.ts";
import type { UsageSpan } from "./span.ts";
import {
  GROUPS_MAX,
  sizeOf,
  type UsagePart,
  type UsageReports,
} from "./usage_reports.ts";

/** A key and its usage. */
export interface KeyUse {
  readonly id: string;
  /** Its account. */
  readonly ownerId: string;
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

/** Accounts whose keys are read at the same time, and at most. */
const ACCOUNTS_AT_ONCE = 10;
const ACCOUNTS_MAX = 100;

/**
 * The keys of all accounts that are used most, of which `accounts` says what each has
 * used. Accounts are read from the largest one on, until no key of another can be among
 * them; no more than a hundred, because their keys may all be small.
 */
export async function readTopKeys(
  deps: { redis: RedisLink; usage: Pick<UsageReports, "parts"> },
  accounts: ReadonlyMap<string, Counts>,
  span: UsageSpan,
): Promise<KeyUse[]> {
  const left = [...accounts].sort(([, a], [, b]) => sizeOf(b) - sizeOf(a))
    .slice(0, ACCOUNTS_MAX);
  let top: KeyUse[] = [];
  while (left.length > 0) {
    const [[, largest] = ["", {}]] = left;
    const least = top[GROUPS_MAX - 1];
    if (least !== undefined && sizeOf(least.counts) >= sizeOf(largest)) break;
    const batch = left.splice(0, ACCOUNTS_AT_ONCE);
    const read = await Promise.all(batch.map(async ([ownerId]) => {
      const keys = await readUsageByKey(deps, { ownerId }, span);
      return keys.slice(0, GROUPS_MAX);
    }));
    top = [top, ...read].flat()
      .sort((a, b) => sizeOf(b.counts) - sizeOf(a.counts))
      .slice(0, GROUPS_MAX);
  }
  return top;
}

/** The keys that have a place of their own in bars: the first ones. */
export const keyParts = (keys: readonly KeyUse[]): UsagePart[] =>
  keys.slice(0, GROUPS_MAX).map(({ id, ownerId }) => ({
    id,
    scope: { ownerId, keyId: id },
  }));

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
      ownerId,
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

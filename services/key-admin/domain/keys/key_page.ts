/** Pages of an owner's keys, with a search and filters. */
import { isKeyId } from "@gateway/shared/keys/key";
import { LAST_USE_DAYS_KEPT } from "@gateway/shared/keys/limiter_state";
import {
  KEY_FIELDS,
  type KeyRecord,
  keysKey,
  type Principal,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import pLimit from "p-limit";
import {
  asFields,
  asNumber,
  BadCursor,
  type Fields,
  readHash,
  type RowPage,
} from "../store/redis.ts";
import {
  type Compared,
  SORTED_MAX,
  sortedPage,
  type SortValues,
} from "../store/sorted.ts";
import { decodeKey } from "./key_record.ts";
import { readLastUse, readTotals, type Totals, utcDayMs } from "./usage.ts";

/** Rows of a page unless the caller asks for fewer. */
export const PAGE_ROWS = 50;
/** Rows of the largest page. */
export const PAGE_ROWS_MAX = 200;
/** Bounds of a search: keys examined for one page, and keys read at a time. */
const SCAN_MAX = 10_000;
const BATCH = 500;
/** Creation time in ms and id of a key. */
const CURSOR = /^(\d{1,16})-(key_\w{1,64})$/;

/**
 * The filters of a list of keys. `with_expiry` finds those that have expired or will;
 * `unused` those that are older than 90 days and were not used for as long.
 */
export const KEY_FILTERS = [
  "all",
  "enabled",
  "disabled",
  "with_expiry",
  "unused",
] as const;
/** One of the {@link KEY_FILTERS}. */
export type KeyFilter = typeof KEY_FILTERS[number];

/** Which keys a page shows, and from where on. */
export interface PageQuery {
  filter: KeyFilter;
  /**
   * Words that the description contains or that are the key's last characters. Empty:
   * no search.
   */
  search: string;
  /** A cursor that came with an earlier page; empty: the first page. */
  after: string;
  rows: number;
  /** Only keys that this owner created; undefined: all. */
  createdBy?: string | undefined;
  /** Today in UTC as `yyyymmdd`, for the counters. */
  day: string;
  /** One of the {@link KEY_SORTS}, or behind a `-`; undefined for the newest first. */
  sort?: string | undefined;
  /** How many keys a search examines for this page. Default: `SCAN_MAX`. */
  examinedMax?: number;
}

/** A key with its last use, and with what was used on the day of the query. */
export interface KeyRow {
  key: KeyRecord;
  /** In ms since 1970; null if it was never used, or too long ago to be known. */
  lastUsedAtMs: number | null;
  /** What was used on the day of the query. */
  totals: Totals;
}

/** The orders of lists of keys. */
export const KEY_SORTS: SortValues<KeyRow> = {
  description: ({ key }) => key.description,
  status: ({ key }) => key.state,
  created: ({ key }) => key.createdAtMs,
  used: ({ lastUsedAtMs }) => lastUsedAtMs,
  expires: ({ key }) => key.expiresAtMs,
  requests: ({ totals }) => totals.requests,
  tokens: ({ totals }) => totals.tokens,
  cost: ({ totals }) => totals.cost,
};

/** One page of keys in the order of one of the {@link KEY_SORTS}. */
async function readSorted(
  redis: RedisLink,
  ownerId: string,
  query: PageQuery & { sort: string },
): Promise<RowPage<KeyRow>> {
  const compared = await readRowsOf(redis, ownerId, query);
  return sortedPage(compared, KEY_SORTS, query);
}

/** Reads all rows that fit a query, in no order, of as many keys as are compared. */
export async function readRowsOf(
  redis: RedisLink,
  ownerId: string,
  query: PageQuery,
): Promise<Compared<KeyRow>> {
  const found: KeyRecord[] = [];
  let examined = 0;
  let isPartial = false;
  for await (const { keyId, fields } of keysFrom(redis, ownerId)) {
    isPartial = examined === SORTED_MAX;
    if (isPartial) break;
    examined += 1;
    const ids = { ownerId, keyId };
    if (await isWanted(redis, { ids, fields }, query)) {
      found.push(decodeKey(ids, fields));
    }
  }
  const place = pLimit(READS);
  const rows = await place.map(
    found,
    (key) => readRow(redis, key, query.day),
  );
  return { rows, isPartial };
}

/** Keys that are read at the same time. */
const READS = 100;

/**
 * Reads one page with a bounded amount of work. A search or filter examines keys
 * in batches; if few match, the page is short and `next` continues from there. Throws
 * {@link BadCursor}.
 */
export async function readPage(
  redis: RedisLink,
  ownerId: string,
  query: PageQuery,
): Promise<RowPage<KeyRow>> {
  const { after, rows, day, sort, examinedMax = SCAN_MAX } = query;
  if (sort !== undefined) {
    return await readSorted(redis, ownerId, { ...query, sort });
  }
  const isSearch = wordsOf(query).length > 0 || query.filter !== "all" ||
    query.createdBy !== undefined;
  const batch = isSearch ? BATCH : rows + 1;
  const start = await positionAfter(redis, ownerId, after);
  const found: KeyRecord[] = [];
  const page = async (next: string | null): Promise<RowPage<KeyRow>> => ({
    rows: await Promise.all(found.map((key) => readRow(redis, key, day))),
    next,
  });
  let examined = 0;
  let last = "";
  const listed = keysFrom(redis, ownerId, { position: start, batch });
  for await (const { keyId, cursor, fields } of listed) {
    if (found.length === rows || examined === examinedMax) return page(last);
    examined++;
    last = cursor;
    const ids = { ownerId, keyId };
    if (!await isWanted(redis, { ids, fields }, query)) continue;
    found.push(decodeKey(ids, fields));
  }
  return page(null);
}

/** How many keys come before the page after a cursor. */
async function positionAfter(
  redis: RedisLink,
  ownerId: string,
  cursor: string,
): Promise<number> {
  if (cursor === "") return 0;
  const [, time = "", keyId = ""] = CURSOR.exec(cursor) ?? [];
  if (!isKeyId(keyId)) throw new BadCursor();
  const list = keysKey(ownerId);
  const rank = await redis.command(["ZREVRANK", list, keyId]);
  if (rank !== null) return asNumber(rank) + 1;
  // The key has been deleted: the next older key has taken its place.
  return asNumber(await redis.command(["ZCOUNT", list, `(${time}`, "+inf"]));
}

/** A key of {@link keysFrom}. */
export interface ListedKey {
  keyId: string;
  /** A page after this cursor begins with the next key. */
  cursor: string;
  /** The record, not decoded; no fields if the key has just been deleted. */
  fields: Fields;
}

/** The keys of an owner from a position on, 0 being the newest, read in batches. */
export async function* keysFrom(
  redis: RedisLink,
  ownerId: string,
  { position = 0, batch = BATCH }: { position?: number; batch?: number } = {},
): AsyncGenerator<ListedKey> {
  for (let start = position;; start += batch) {
    const ends = [start, start + batch - 1].map(String);
    const range = ["ZREVRANGE", keysKey(ownerId), ...ends, "WITHSCORES"];
    const times = Object.entries(asFields(await redis.command(range)));
    yield* await Promise.all(times.map(async ([keyId, time]) => ({
      keyId,
      cursor: `${time}-${keyId}`,
      fields: await readHash(redis, recordKey({ ownerId, keyId })) ?? {},
    })));
    if (times.length < batch) return;
  }
}

/**
 * The form in which text is compared: `"Café"` is found in both Unicode forms and in
 * any case.
 */
const normal = (text: string): string => text.normalize("NFKC").toLowerCase();

const wordsOf = ({ search }: PageQuery): string[] =>
  normal(search).split(/\s+/).filter((word) => word !== "");

async function isWanted(
  redis: RedisLink,
  { ids, fields }: { ids: Principal; fields: Fields },
  query: PageQuery,
): Promise<boolean> {
  if (!hasAll(fields, query)) return false;
  if (query.filter !== "unused") return true;
  const { ownerId, keyId: id } = ids;
  const sinceMs = utcDayMs(query.day) - LAST_USE_DAYS_KEPT * DAY_MS;
  if (Number(fields[KEY_FIELDS.createdAtMs]) > sinceMs) return false;
  return (await readLastUse(redis, { ownerId, id }) ?? 0) < sinceMs;
}

const DAY_MS = 86_400_000;

function hasAll(fields: Fields, query: PageQuery): boolean {
  const { filter, createdBy } = query;
  const text = (field: string) => normal(fields[field] ?? "");
  const state = fields[KEY_FIELDS.state];
  const hasFilter = filter === "all" || filter === "unused" ||
    filter === state ||
    (filter === "with_expiry" && fields[KEY_FIELDS.expiresAtMs] !== "0");
  return state !== undefined && hasFilter &&
    (createdBy === undefined || isCreatedBy(fields, createdBy)) &&
    wordsOf(query).every((word) =>
      text(KEY_FIELDS.description).includes(word) ||
      text(KEY_FIELDS.hint).slice(-4) === word
    );
}

/** Whether this owner created the key in the fields of a record. */
export const isCreatedBy = (fields: Fields, ownerId: string): boolean =>
  fields[KEY_FIELDS.createdBy] === ownerId;

/** Reads what a list shows of a key beside its record. `day` is `yyyymmdd` in UTC. */
export async function readRow(
  redis: RedisLink,
  key: KeyRecord,
  day: string,
): Promise<KeyRow> {
  const counters = usageKey({ ...key, keyId: key.id }, day);
  return {
    key,
    lastUsedAtMs: await readLastUse(redis, key),
    totals: await readTotals(redis, [counters]),
  };
}

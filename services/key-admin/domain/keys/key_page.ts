/** Pages of an owner's keys, with a search and filters. */
import { isKeyId } from "@gateway/shared/keys/key";
import {
  KEY_FIELDS,
  type KeyRecord,
  keysKey,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  asFields,
  asNumber,
  BadCursor,
  type Fields,
  readHash,
  type RowPage,
} from "../store/redis.ts";
import { decodeKey } from "./key_record.ts";
import { readLastUse, readTotals, type Totals } from "./usage.ts";

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
 * The filters of a list of keys. `with_expiry` finds those that have expired or will.
 */
export const KEY_FILTERS = [
  "all",
  "enabled",
  "disabled",
  "with_expiry",
] as const;
/** One of the {@link KEY_FILTERS}. */
export type KeyFilter = typeof KEY_FILTERS[number];

/** The query for a page of keys. */
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
  /** How many keys a search examines for this page. Default: `SCAN_MAX`. */
  examinedMax?: number;
}

/** A key in a list. */
export interface KeyRow {
  key: KeyRecord;
  /** In ms since 1970; null if it was never used, or too long ago to be known. */
  lastUsedAtMs: number | null;
  /** What was used on the day of the query. */
  totals: Totals;
}

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
  const { after, rows, day, examinedMax = SCAN_MAX } = query;
  const words = normal(query.search).split(/\s+/).filter((word) => word !== "");
  const isSearch = words.length > 0 || query.filter !== "all" ||
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
    if (!isWanted(fields, query, words)) continue;
    found.push(decodeKey({ ownerId, keyId }, fields));
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

function isWanted(
  fields: Fields,
  { filter, createdBy }: PageQuery,
  words: string[],
): boolean {
  const text = (field: string) => normal(fields[field] ?? "");
  const state = fields[KEY_FIELDS.state];
  const hasFilter = filter === "all" || filter === state ||
    (filter === "with_expiry" && fields[KEY_FIELDS.expiresAtMs] !== "0");
  return state !== undefined && hasFilter &&
    (createdBy === undefined || isCreatedBy(fields, createdBy)) &&
    words.every((word) =>
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

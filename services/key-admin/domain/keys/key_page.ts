import { isKeyId } from "@gateway/shared/keys/key";
import { USAGE_KINDS } from "@gateway/shared/keys/limiter_state";
import {
  type KeyRecord,
  keysKey,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asNumber, asTexts, readHash } from "../store/reply.ts";
import { decodeKey } from "./key_record.ts";
import { readLastUse } from "./usage.ts";

/** Rows of a page unless the caller asks for fewer. */
export const PAGE_ROWS = 50;
export const PAGE_ROWS_MAX = 200;
/** How many keys a search examines for one page, and how many it reads at a time. */
const SCAN_MAX = 10_000;
const BATCH = 500;
/** Creation time in ms and id of a key. */
const CURSOR = /^(\d{1,16})-(key_\w{1,64})$/;

/** Which keys to list. `with_expiry` are those that have expired or will. */
export type KeyFilter = "all" | "enabled" | "disabled" | "with_expiry";

/** Which keys, and which page of them. */
export interface PageQuery {
  filter: KeyFilter;
  /** Words that the description contains or that are the key's last characters. Empty: no search. */
  search: string;
  /** A cursor that came with an earlier page; empty: the first page. */
  after: string;
  /** 1 to 200. */
  rows: number;
  /** Today in UTC as `yyyymmdd`, for the counters. */
  day: string;
}

/** A key in a list. */
export interface KeyRow {
  key: KeyRecord;
  /** Null: never used, or so long ago that the limiter has dropped it. */
  lastUsedAtMs: number | null;
  requestsToday: number;
  tokensToday: number;
}

/** One page of keys. */
export interface KeyPage {
  /** Newest first. */
  rows: KeyRow[];
  /** The cursor of the previous page; null on the first page, and with a search or filter. */
  previous: string | null;
  /** The cursor of the next page; null at the end. */
  next: string | null;
  /** How many keys there are, and how many come before the first row; null with a search or filter, which does not count. */
  total: number | null;
  before: number | null;
}

/** A cursor that did not come from a page. */
export class BadCursor extends Error {
  override name = "BadCursor";
  override message =
    "The cursor is invalid: use one that an earlier page returned";
}

interface Listed {
  cursor: string;
  /** Null: the key has just been deleted. */
  key: KeyRecord | null;
}

/**
 * Reads one page with a bounded amount of work. A search or filter examines keys
 * one by one; if few match, the page is short and `next` continues from there.
 */
export async function readPage(
  redis: RedisLink,
  ownerId: string,
  { filter, search, after, rows, day }: PageQuery,
): Promise<KeyPage> {
  const words = normal(search).split(/\s+/).filter((word) => word !== "");
  const isCounted = words.length === 0 && filter === "all";
  const size = Math.max(1, Math.min(rows, PAGE_ROWS_MAX));
  const batch = isCounted ? size : BATCH;
  const list = keysKey(ownerId);
  const total = asNumber(await redis.command(["ZCARD", list]));
  /** Positions in the list: 0 is the newest key. */
  const first = await positionAfter(redis, list, after);
  let position = first;
  const found: KeyRecord[] = [];
  let cursor = "";
  while (
    position < total && found.length < size && position < first + SCAN_MAX
  ) {
    for (const listed of await readKeys(redis, ownerId, position, batch)) {
      if (found.length === size) break;
      position++;
      cursor = listed.cursor;
      const { key } = listed;
      if (key && isWanted(key, filter, words)) found.push(key);
    }
  }
  const back = isCounted && first > size
    ? (await readKeys(redis, ownerId, first - size - 1, 1))[0]?.cursor
    : "";
  return {
    rows: await Promise.all(found.map((key) => readRow(redis, key, day))),
    previous: isCounted && first > 0 ? back ?? "" : null,
    next: position < total ? cursor : null,
    total: isCounted ? total : null,
    before: isCounted ? first : null,
  };
}

/** Where in the list the page after a cursor begins. */
async function positionAfter(
  redis: RedisLink,
  list: string,
  cursor: string,
): Promise<number> {
  if (cursor === "") return 0;
  // Cursors come from URLs.
  const [, time = "", keyId = ""] = CURSOR.exec(cursor) ?? [];
  if (!isKeyId(keyId)) throw new BadCursor();
  const rank = await redis.command(["ZREVRANK", list, keyId]);
  if (rank !== null) return asNumber(rank) + 1;
  // The key has been deleted: the next older key has taken its place.
  return asNumber(await redis.command(["ZCOUNT", list, `(${time}`, "+inf"]));
}

/** Reads `count` keys from a position on. */
async function readKeys(
  redis: RedisLink,
  ownerId: string,
  position: number,
  count: number,
): Promise<Listed[]> {
  const ends = [position, position + count - 1].map(String);
  const flat = asTexts(
    await redis.command(
      ["ZREVRANGE", keysKey(ownerId), ...ends, "WITHSCORES"],
    ),
  );
  const listed = await Promise.all(flat.map(async (keyId, at) => {
    if (at % 2 === 1) return [];
    const fields = await readHash(redis, recordKey({ ownerId, keyId }));
    return [{
      cursor: `${flat[at + 1]}-${keyId}`,
      key: fields.size === 0 ? null : decodeKey({ ownerId, keyId }, fields),
    }];
  }));
  return listed.flat();
}

/** The form in which text is compared: `"Café"` is found in both Unicode forms and in any case. */
const normal = (text: string): string => text.normalize("NFKC").toLowerCase();

function isWanted(
  { state, expiresAtMs, description, hint }: KeyRecord,
  filter: KeyFilter,
  words: readonly string[],
): boolean {
  const hasFilter = filter === "all" || filter === state ||
    (filter === "with_expiry" && expiresAtMs !== null);
  const text = normal(description);
  const end = normal(hint.slice(-4));
  return hasFilter &&
    words.every((word) => text.includes(word) || word === end);
}

async function readRow(
  redis: RedisLink,
  key: KeyRecord,
  day: string,
): Promise<KeyRow> {
  const principal = { ownerId: key.ownerId, keyId: key.id };
  const [usage, lastUsedAtMs] = await Promise.all([
    readHash(redis, usageKey(principal, day)),
    readLastUse(redis, key),
  ]);
  const today = (...kinds: string[]) =>
    [...usage]
      .filter(([field]) => kinds.includes(field.split(":")[1] ?? ""))
      .reduce((sum, [, value]) => sum + asNumber(value), 0);
  return {
    key,
    lastUsedAtMs,
    requestsToday: today(USAGE_KINDS.requests),
    tokensToday: today(USAGE_KINDS.promptTokens, USAGE_KINDS.completionTokens),
  };
}

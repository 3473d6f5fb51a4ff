import type { KeyRecord, KeyState } from "@gateway/shared/keys/record";
import { findKey } from "../store/names.ts";
import type { RedisLink } from "@gateway/shared/redis/link";
import { asFields, asList, asNumber, asText } from "../store/reply.ts";
import { decodeKey } from "./key_codec.ts";
import { PAGE_SCRIPT } from "./key_page.lua.ts";
import { type Tag, tagRange, wordRange, wordsOf } from "./search_terms.ts";

/** Rows of a page unless the caller asks for fewer. */
export const PAGE_ROWS = 50;
const PAGE_ROWS_MAX = 200;
/** Index members one call looks at: at about 2 us each, Redis is held for 2 ms at most. */
const SCAN_MAX = 1_000;
const CURSOR_CHARS_MAX = 200;
const CURSOR = /^[^/]{1,64}\/\d{1,16}\/key_[0-9A-Za-z]{20}$/u;

/** Which keys. `with_expiry` are those that have an end, reached or not. */
export type KeyFilter = "all" | "enabled" | "disabled" | "with_expiry";

/** Where a page begins. A cursor is opaque text from an earlier page. */
export type PageStart =
  | { at: "first" }
  | { at: "last" }
  | { at: "after"; cursor: string }
  | { at: "before"; cursor: string };

/** Which page of which keys. */
export interface PageQuery {
  filter: KeyFilter;
  /** Words to find, in any order; each may be the beginning of a word. Empty: no search. */
  search: string;
  start: PageStart;
  /** 1 to 200. */
  rows: number;
  /** Today in UTC as `yyyymmdd`, for the counters. */
  day: string;
}

/** A key as the list shows it. */
export interface KeyRow {
  key: KeyRecord;
  /** Null: never used, or not for so long that the limiter forgot. */
  lastUsedAtMs: number | null;
  requestsToday: number;
  tokensToday: number;
}

/** One page of keys. */
export interface KeyPage {
  /** Newest first. */
  rows: KeyRow[];
  /** Cursors of the neighbouring pages; null where there is none. */
  previous: string | null;
  next: string | null;
  /** How many keys there are and how many come before the first row; null for a search, which does not count. */
  total: number | null;
  before: number | null;
}

/** A cursor that did not come from a page. */
export class BadCursor extends Error {
  override name = "BadCursor";
}

/** Reads one page in one script call that does a bounded amount of work. */
export async function readPage(
  redis: RedisLink,
  ownerId: string,
  query: PageQuery,
): Promise<KeyPage> {
  const plan = planPage(query);
  const reply = asList(
    await redis.evalScript(PAGE_SCRIPT, [findKey(ownerId)], [
      JSON.stringify({ ...plan, owner: ownerId, day: query.day }),
    ]),
  );
  return toPage(ownerId, query, plan.backward, reply);
}

const TAG_OF: Record<KeyFilter, Tag> = {
  all: ":all",
  enabled: ":enabled",
  disabled: ":disabled",
  with_expiry: ":expires",
};

function planPage({ filter, search, start, rows }: PageQuery) {
  const words = wordsOf(search);
  // The longest word leaves the fewest candidates.
  const prefix = words.toSorted((a, b) => b.length - a.length)[0] ?? "";
  const whole = prefix === "" ? tagRange(TAG_OF[filter]) : wordRange(prefix);
  const state: KeyState | "" = prefix !== "" &&
      (filter === "enabled" || filter === "disabled")
    ? filter
    : "";
  const expires = prefix !== "" && filter === "with_expiry";
  const cursor = "cursor" in start ? checkCursor(start.cursor) : "";
  const backward = start.at === "last" || start.at === "before";
  const size = Math.max(1, Math.min(rows, PAGE_ROWS_MAX));
  return {
    from: start.at === "after" ? `(${cursor}` : whole.from,
    to: start.at === "before" ? `(${cursor}` : whole.to,
    wholeFrom: whole.from,
    wholeTo: whole.to,
    backward,
    size,
    scanMax: SCAN_MAX,
    batch: prefix === "" ? size + 1 : 100,
    state,
    expires,
    words: words.filter((word) => word !== prefix),
    prefix,
    counted: prefix === "",
  };
}

/** Cursors come back from URLs: nothing but a member of the index may pass. */
function checkCursor(cursor: string): string {
  if (cursor.length > CURSOR_CHARS_MAX || !CURSOR.test(cursor)) {
    throw new BadCursor("This is no cursor of a page");
  }
  return cursor;
}

function toPage(
  ownerId: string,
  { start }: PageQuery,
  backward: boolean,
  [total, before, atEnd, last, rowReplies]: unknown[],
): KeyPage {
  const found = asList(rowReplies).map((reply) =>
    toRow(ownerId, asList(reply))
  );
  if (backward) found.reverse();
  const hasEnded = asNumber(atEnd) === 1;
  const scannedTo = asText(last);
  const firstSeen = found[0]?.member ?? scannedTo;
  const lastSeen = found.at(-1)?.member ?? scannedTo;
  // The side the scan ran to knows whether there is more; the other side is where it came from.
  const more = hasEnded ? null : scannedTo;
  const page = backward
    ? {
      previous: more,
      next: start.at === "last" || lastSeen === "" ? null : lastSeen,
    }
    : {
      previous: start.at === "first" || firstSeen === "" ? null : firstSeen,
      next: more,
    };
  const counted = asNumber(total);
  return {
    rows: found.flatMap(({ row }) => row === null ? [] : [row]),
    ...page,
    total: counted < 0 ? null : counted,
    before: counted < 0 ? null : Math.max(0, asNumber(before)),
  };
}

function toRow(
  ownerId: string,
  [member, id, record, lastUsed, requests, tokens]: unknown[],
): { member: string; row: KeyRow | null } {
  const keyId = asText(id);
  const fields = asFields(record);
  const lastUsedAtMs = asNumber(lastUsed);
  return {
    member: asText(member),
    row: fields.size === 0 ? null : {
      key: decodeKey({ ownerId, keyId }, fields),
      lastUsedAtMs: lastUsedAtMs === 0 ? null : lastUsedAtMs,
      requestsToday: asNumber(requests),
      tokensToday: asNumber(tokens),
    },
  };
}

import { USAGE_KINDS } from "@gateway/shared/keys/limiter_state";
import {
  type KeyRecord,
  recordKey,
  usageKey,
} from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { findKey } from "../store/names.ts";
import {
  asList,
  asNumber,
  asTextOrNull,
  asTexts,
  readHash,
} from "../store/reply.ts";
import { decodeKey } from "./key_record.ts";
import { type Tag, tagRange, wordRange, wordsOf } from "./search_terms.ts";
import { readLastUse } from "./usage.ts";

/** Rows of a page unless the caller asks for fewer. */
export const PAGE_ROWS = 50;
const PAGE_ROWS_MAX = 200;
/** Index members a search looks at before it returns what it has, and how many it reads at a time. */
const SCAN_MAX = 1_000;
const SEARCH_BATCH = 100;
const CURSOR = /^[^/]{1,64}\/\d{1,16}\/key_[0-9A-Za-z]{20}$/u;

/** Which keys. `with_expiry` are those that have expired or will. */
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

/** Reads one page. Its work is bounded whatever the owner has stored. */
export async function readPage(
  redis: RedisLink,
  ownerId: string,
  query: PageQuery,
): Promise<KeyPage> {
  const plan = planPage(query);
  const scan = await scanIndex(redis, ownerId, plan);
  const rows = await Promise.all(
    scan.found.map((member) => readRow(redis, ownerId, member, query.day)),
  );
  return {
    // A key that was deleted meanwhile has no record.
    rows: rows.filter((row) => row !== null),
    ...neighbours(query.start, plan.backward, scan),
    ...await count(redis, ownerId, plan, scan.found[0]),
  };
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
  const cursor = "cursor" in start ? start.cursor : null;
  // Cursors come from URLs, so only the form of an index member is accepted.
  if (cursor !== null && !CURSOR.test(cursor)) {
    throw new BadCursor("This is not the cursor of a page");
  }
  const size = Math.max(1, Math.min(rows, PAGE_ROWS_MAX));
  return {
    /** The part of the index with all keys in question. */
    whole,
    /** The part of it that may hold this page. */
    from: start.at === "after" ? `(${cursor}` : whole.from,
    to: start.at === "before" ? `(${cursor}` : whole.to,
    backward: start.at === "last" || start.at === "before",
    size,
    batch: prefix === "" ? size + 1 : SEARCH_BATCH,
    /** The word that `whole` is about, "" when it is about a tag. */
    prefix,
    /** What else a key must have. */
    words: words.filter((word) => word !== prefix),
    filter,
  };
}

type Plan = ReturnType<typeof planPage>;

interface Scan {
  /** Members of the index, newest key first. */
  found: string[];
  /** The last member looked at. */
  last: string;
  /** Whether nothing comes after it. */
  hasEnded: boolean;
}

async function scanIndex(
  redis: RedisLink,
  ownerId: string,
  plan: Plan,
): Promise<Scan> {
  const { backward, size, batch } = plan;
  const found: string[] = [];
  let { from, to } = plan;
  let last = "";
  let hasEnded = false;
  for (
    let scanned = 0;
    !hasEnded && found.length < size && scanned < SCAN_MAX;
    scanned += batch
  ) {
    const range = backward
      ? ["ZREVRANGEBYLEX", findKey(ownerId), to, from]
      : ["ZRANGEBYLEX", findKey(ownerId), from, to];
    const members = asTexts(
      await redis.command([...range, "LIMIT", "0", String(batch)]),
    );
    const isMatch = await Promise.all(
      members.map((member) => matches(redis, ownerId, member, plan)),
    );
    hasEnded = members.length < batch;
    for (const [at, member] of members.entries()) {
      if (found.length === size) {
        hasEnded = false;
        break;
      }
      last = member;
      if (isMatch[at]) found.push(member);
    }
    if (backward) to = `(${last}`;
    else from = `(${last}`;
  }
  if (backward) found.reverse();
  return { found, last, hasEnded };
}

/** The index finds keys by one word: whether this key matches the rest of the search. */
async function matches(
  redis: RedisLink,
  ownerId: string,
  member: string,
  { prefix, words, filter }: Plan,
): Promise<boolean> {
  if (prefix === "") return true;
  const record = recordKey({ ownerId, keyId: keyIdOf(member) });
  const [state, text, expiresAt] = asList(
    await redis.command(["HMGET", record, "state", "words", "expires_at"]),
  ).map(asTextOrNull);
  const own = (text ?? "").split(" ");
  // A key with "api" and "apis" is in the range of "ap" twice: its first word counts.
  return own.find((word) => word.startsWith(prefix)) === termOf(member) &&
    words.every((word) => own.some((one) => one.startsWith(word))) &&
    (filter === "all" || filter === state ||
      (filter === "with_expiry" && expiresAt !== "0"));
}

const termOf = (member: string): string => member.split("/")[0] ?? "";
const keyIdOf = (member: string): string => member.split("/")[2] ?? "";

async function readRow(
  redis: RedisLink,
  ownerId: string,
  member: string,
  day: string,
): Promise<KeyRow | null> {
  const principal = { ownerId, keyId: keyIdOf(member) };
  const [fields, usage, lastUsedAtMs] = await Promise.all([
    readHash(redis, recordKey(principal)),
    readHash(redis, usageKey(principal, day)),
    readLastUse(redis, { ownerId, id: principal.keyId }),
  ]);
  if (fields.size === 0) return null;
  const today = (...kinds: string[]) =>
    [...usage]
      .filter(([field]) => kinds.includes(field.split(":")[1] ?? ""))
      .reduce((sum, [, value]) => sum + asNumber(value), 0);
  return {
    key: decodeKey(principal, fields),
    lastUsedAtMs,
    requestsToday: today(USAGE_KINDS.requests),
    tokensToday: today(USAGE_KINDS.promptTokens, USAGE_KINDS.completionTokens),
  };
}

/** Cursors of the pages beside this one. */
function neighbours(
  { at }: PageStart,
  backward: boolean,
  { found, last, hasEnded }: Scan,
): Pick<KeyPage, "previous" | "next"> {
  // The scan tells whether there is more in its direction; the other way leads back to where it began.
  const more = hasEnded ? null : last;
  const back = (backward ? found.at(-1) : found[0]) ?? last;
  const isEdge = at === "first" || at === "last" || back === "";
  const behind = isEdge ? null : back;
  return backward
    ? { previous: more, next: behind }
    : { previous: behind, next: more };
}

/** How many keys there are in all, and before the first of the page. A search does not count them. */
async function count(
  redis: RedisLink,
  ownerId: string,
  { whole: { from, to }, prefix }: Plan,
  first: string | undefined,
): Promise<Pick<KeyPage, "total" | "before">> {
  if (prefix !== "") return { total: null, before: null };
  const [total, before] = await Promise.all(
    [to, first === undefined ? from : `(${first}`].map(async (end) =>
      asNumber(await redis.command(["ZLEXCOUNT", findKey(ownerId), from, end]))
    ),
  );
  return { total: total ?? 0, before: before ?? 0 };
}

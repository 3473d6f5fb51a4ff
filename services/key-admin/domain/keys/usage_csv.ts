import { FAILURE_REASONS } from "@gateway/shared/keys/failed_requests";
import {
  USAGE_DAYS_KEPT,
  USAGE_UNITS,
} from "@gateway/shared/keys/limiter_state";
import { KEY_FIELDS, type KeyRecord } from "@gateway/shared/keys/record";
import type { RedisLink } from "@gateway/shared/redis/link";
import { csvHead, csvLine } from "../store/csv.ts";
import { keysFrom } from "./key_page.ts";
import { limitWords } from "./settings.ts";
import { add, type Counts, lastDays, MAIN_COUNTS, readDay } from "./usage.ts";

/** Usage as a file for spreadsheets: a line for each hour, key and model. */

const BATCH = 500;

const COUNTS = [...MAIN_COUNTS, ...USAGE_UNITS, ...FAILURE_REASONS];

interface Row {
  day: string;
  hour: string;
  model: string;
  counts: Counts;
}

type Rows = Map<string, Row>;
type KeyCells = readonly [id: string, hint: string, description: string];

/**
 * The lines of one key, or of all keys of an owner when `key` is null, over all days
 * that are kept. What belongs to keys that were deleted, or to "Try it", comes last without
 * names. In bounded memory: key by key.
 */
export async function* usageCsv(
  redis: RedisLink,
  ownerId: string,
  key: KeyRecord | null,
  nowMs: number,
): AsyncGenerator<string> {
  yield csvHead([
    ...["day", "hour_utc", "key_id", "key", "description", "model"],
    ...COUNTS.map((name) => limitWords(name, "_")),
  ]);
  const days = lastDays(USAGE_DAYS_KEPT, nowMs);
  if (key !== null) {
    const { id: keyId, hint, description } = key;
    const rows = await readRows(redis, { ownerId, keyId }, days);
    return yield linesOf(rows, [keyId, hint, description]);
  }
  const all = await readRows(redis, { ownerId, keyId: null }, days);
  const used = new Set([...all.values()].map(({ day }) => day));
  for await (const { keyId, fields } of keysFrom(redis, ownerId, 0, BATCH)) {
    const rows = await readRows(redis, { ownerId, keyId }, [...used]);
    for (const [name, { counts }] of rows) subtract(all.get(name), counts);
    const { hint, description } = KEY_FIELDS;
    const names = [fields[hint] ?? "", fields[description] ?? ""] as const;
    yield linesOf(rows, [keyId, ...names]);
  }
  yield linesOf(all, ["", "", "deleted keys and Try it"]);
}

async function readRows(
  redis: RedisLink,
  of: { ownerId: string; keyId: string | null },
  days: readonly string[],
): Promise<Rows> {
  const rows: Rows = new Map();
  await Promise.all(days.map(async (day) => {
    for (const tally of await readDay(redis, of, day)) {
      const { hour, model } = tally;
      const name = `${day} ${hour} ${model}`;
      const row = rows.get(name) ?? { day, hour, model, counts: {} };
      rows.set(name, row);
      add(row.counts, tally);
    }
  }));
  return rows;
}

/** A request may have been counted since the sum was read: nothing becomes negative. */
function subtract(row: Row | undefined, counts: Counts): void {
  for (const name of COUNTS) {
    const left = (row?.counts[name] ?? 0) - (counts[name] ?? 0);
    if (row !== undefined) row.counts[name] = Math.max(0, left);
  }
}

/** Oldest first, without hours in which nothing is left. */
function linesOf(rows: Rows, names: KeyCells): string {
  const sorted = [...rows].sort(([a], [b]) => a < b ? -1 : 1);
  return sorted.map(([, { day, hour, model, counts }]) => {
    const numbers = COUNTS.map((name) => counts[name] ?? 0);
    if (numbers.every((number) => number === 0)) return "";
    const date = day.replace(/(\d{4})(\d\d)(\d\d)/, "$1-$2-$3");
    return csvLine([date, hour, ...names, model, ...numbers]);
  }).join("");
}

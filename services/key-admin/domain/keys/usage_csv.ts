/** Usage as a CSV file. */
import { USAGE_HOURS_KEPT_DAYS } from "@gateway/shared/keys/limiter_state";
import { KEY_FIELDS, type KeyRecord } from "@gateway/shared/keys/record";
import { formatAmount } from "@gateway/shared/money/amount";
import type { RedisLink } from "@gateway/shared/redis/link";
import { csvHead, csvLine } from "../store/csv.ts";
import { isCreatedBy, keysFrom } from "./key_page.ts";
import { limitWords } from "./settings.ts";
import {
  COST_COUNTS,
  COUNTS,
  lastDays,
  readRows,
  type UsageRow,
} from "./usage.ts";

/**
 * Usage as a file for spreadsheets, in bounded memory: a line for each hour, key,
 * endpoint and model, of one key or, when `key` is null, of all keys of an owner, over
 * all days that are kept. What belongs to deleted keys or to "Try it" comes last,
 * without names.
 */
export async function* usageCsv(
  redis: RedisLink,
  { ownerId, key, createdBy }: {
    ownerId: string;
    key: KeyRecord | null;
    /** Only keys that this owner created are named; undefined if all are. */
    createdBy?: string | undefined;
  },
  nowMs: number,
): AsyncGenerator<string> {
  yield csvHead([
    "day",
    "hour_utc",
    "key_id",
    "key",
    "description",
    "endpoint",
    "model",
    ...COUNTS.map((name) => limitWords(name, "_")),
  ]);
  const days = lastDays(USAGE_HOURS_KEPT_DAYS, nowMs);
  const keyId = key?.id ?? null;
  const all = await readRows(redis, { ownerId, keyId }, days);
  if (key !== null) {
    return yield linesOf(all, [key.id, key.hint, key.description]);
  }
  const used = new Set(Array.from(all.values(), ({ day }) => day));
  for await (const { keyId, fields } of keysFrom(redis, ownerId)) {
    if (createdBy && !isCreatedBy(fields, createdBy)) continue;
    const rows = await readRows(redis, { ownerId, keyId }, [...used]);
    for (const [at, { counts }] of rows) {
      const left = all.get(at)?.counts ?? {};
      for (const name of COUNTS) {
        // More may have been counted since the sum was read.
        left[name] = Math.max(0, (left[name] ?? 0) - (counts[name] ?? 0));
      }
    }
    const { [KEY_FIELDS.hint]: hint, [KEY_FIELDS.description]: text } = fields;
    yield linesOf(rows, [keyId, hint ?? "", text ?? ""]);
  }
  yield linesOf(all, ["", "", restOf(createdBy)]);
}

/** Returns the name of the lines for usage of keys without lines of their own. */
export const restOf = (createdBy: string | undefined): string =>
  createdBy === undefined ? "deleted keys and Try it" : "all other keys";

const isCost = (name: string): boolean =>
  COST_COUNTS.some((each) => each === name);

/** Oldest first, without hours in which nothing is left. */
function linesOf(
  rows: ReadonlyMap<string, UsageRow>,
  names: readonly [id: string, hint: string, description: string],
): string {
  const sorted = [...rows].sort(([a], [b]) => a < b ? -1 : 1);
  return sorted.map(([, { day, hour, endpoint, model, counts }]) => {
    if (COUNTS.every((name) => !counts[name])) return "";
    const numbers = COUNTS.map((name) => {
      const count = counts[name] ?? 0;
      return isCost(name) ? formatAmount(count) : count;
    });
    const date = day.replace(/(\d{4})(\d\d)(\d\d)/, "$1-$2-$3");
    return csvLine([date, hour, ...names, endpoint, model, ...numbers]);
  }).join("");
}

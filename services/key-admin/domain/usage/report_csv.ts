/** The usage of a span as a CSV file with few columns. */
import { USAGE_UNITS } from "@gateway/shared/keys/limiter_state";
import { formatAmount } from "@gateway/shared/money/amount";
import { limitWords } from "../keys/settings.ts";
import {
  type CountName,
  type Counts,
  isUsed,
  type UsageScope,
  withoutCounts,
} from "../keys/usage.ts";
import { csvHead, csvLine } from "../store/csv.ts";
import { GATEWAY } from "./day_sums.ts";
import type { UsageSpan } from "./span.ts";
import type { Grouping, UsageReports } from "./usage_reports.ts";

const COUNTED: readonly CountName[] = [
  "requests",
  "failed",
  "refused",
  "inputTokens",
  "outputTokens",
  ...USAGE_UNITS,
];

/** A key or an account with the cells that name it. */
export interface CsvPart {
  readonly scope: UsageScope;
  readonly names: readonly string[];
}

/** Which usage a file has, and how its lines are grouped. */
export interface ReportCsvQuery {
  readonly scope: UsageScope;
  readonly span: UsageSpan;
  readonly by: Grouping | null;
  readonly currency: string;
  /** With `by` keys or accounts, those that have lines of their own. */
  readonly parts: () => AsyncIterable<CsvPart>;
  /** The name of the others. */
  readonly others: string;
}

const NAME_COLUMNS: Readonly<Record<Grouping, readonly string[]>> = {
  model: ["model"],
  endpoint: ["endpoint"],
  key: ["key_id", "key", "description"],
  account: ["account_id", "account"],
};

/** The columns that name a part; keys of all accounts have those of their account. */
function nameColumns(
  by: Grouping | null,
  { ownerId }: UsageScope,
): readonly string[] {
  if (by === null) return [];
  return by === "key" && ownerId === GATEWAY
    ? [...NAME_COLUMNS.account, ...NAME_COLUMNS.key]
    : NAME_COLUMNS[by];
}

/**
 * A line for each hour or day of the span or, with `by`, for each of them and each
 * model, endpoint, key or account that was used then.
 */
export async function* reportCsv(
  usage: Pick<UsageReports, "read" | "readBy">,
  { scope, span, by, currency, parts, others }: ReportCsvQuery,
): AsyncGenerator<string> {
  const columns = nameColumns(by, scope);
  yield csvHead([
    span.unit === "hour" ? "hour_from" : "day",
    ...columns,
    ...COUNTED.map((name) => limitWords(name, "_")),
    "cost",
    "currency",
  ]);
  const lines = (
    buckets: readonly Counts[],
    names: readonly string[],
    { withUnused = false } = {},
  ) =>
    buckets.map((counts, at) =>
      withUnused || isUsed(counts)
        ? csvLine([
          cellOf(span, at),
          ...names,
          ...COUNTED.map((name) => counts[name] ?? 0),
          formatAmount(counts.cost ?? 0),
          currency,
        ])
        : ""
    ).join("");
  if (by === "model" || by === "endpoint") {
    const { groups } = await usage.readBy(scope, span, {
      by,
      countMax: Infinity,
    });
    for (const { id, buckets } of groups) yield lines(buckets, [id ?? ""]);
    return;
  }
  let { buckets: left } = await usage.read(scope, span);
  if (by === null) return yield lines(left, [], { withUnused: true });
  for await (const { scope: part, names } of parts()) {
    const { buckets } = await usage.read(part, span);
    left = left.map((counts, at) => withoutCounts(counts, buckets[at] ?? {}));
    yield lines(buckets, names);
  }
  const empty = columns.slice(1).map(() => "");
  yield lines(left, [...empty, others]);
}

/** `2026-11-28`, or `2026-11-28T13:00+01:00` in the zone of the span. */
function cellOf({ marks, zone }: UsageSpan, at: number): string {
  const mark = marks[at] ?? "";
  return typeof mark === "string" ? mark : localTime(mark, zone);
}

function localTime(ms: number, zone: string): string {
  const parts = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    timeZoneName: "longOffset",
  }).formatToParts(ms);
  const textOf = (type: string) =>
    parts.find((part) => part.type === type)?.value ?? "";
  const offset = textOf("timeZoneName").replace("GMT", "") || "+00:00";
  return `${textOf("year")}-${textOf("month")}-${textOf("day")}T${
    textOf("hour")
  }:${textOf("minute")}${offset}`;
}

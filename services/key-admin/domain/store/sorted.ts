/** Lists in the order of one of their columns. */
import { BadCursor, type RowPage } from "./redis.ts";

/** A value that rows are compared by; null, if none is known, comes last. */
export type SortValue = string | number | null;
/** The values of rows by the name of an order. */
export type SortValues<Row> = Readonly<
  Record<string, (row: Row) => SortValue>
>;

/** The query for a page of a list in an order. */
export interface SortQuery {
  /** A name of the values; behind a `-`, the largest first. */
  sort: string;
  /** A cursor that came with an earlier page; empty: the first page. */
  after: string;
  rows: number;
}

/**
 * Rows that are compared at most, in ms rather than seconds. Of longer lists these are
 * the first, and the page says so.
 */
export const SORTED_MAX = 10_000;

/** The rows that an order compares, which may be fewer than the list has. */
export interface Compared<Row> {
  readonly rows: readonly Row[];
  /** Whether the list has more. */
  readonly isPartial: boolean;
}

const CURSOR = /^at(\d{1,6})$/;
const TEXTS = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Whether a text names an order of these values. */
export const isSort = (text: string, values: SortValues<never>): boolean =>
  Object.hasOwn(values, text.replace(/^-/, ""));

/** All of a list that is short enough. */
export const allOf = <Row>(rows: readonly Row[]): Compared<Row> => ({
  rows,
  isPartial: false,
});

/** One page of the rows in an order. Throws {@link BadCursor}. */
export function sortedPage<Row>(
  { rows, isPartial }: Compared<Row>,
  values: SortValues<Row>,
  { sort, after, rows: count }: SortQuery,
): RowPage<Row> {
  const [, from] = CURSOR.exec(after) ?? [];
  if (after !== "" && from === undefined) throw new BadCursor();
  const start = Number(from ?? 0);
  const end = start + count;
  const valueOf = values[sort.replace(/^-/, "")] ?? (() => null);
  const sign = sort.startsWith("-") ? -1 : 1;
  const valued = rows.map((row) => ({ row, value: valueOf(row) }));
  valued.sort((a, b) => compare(a.value, b.value, sign));
  return {
    rows: valued.slice(start, end).map(({ row }) => row),
    next: end < rows.length ? `at${end}` : null,
    isPartial,
  };
}

function compare(a: SortValue, b: SortValue, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return sign *
    (typeof a === "number" && typeof b === "number"
      ? a - b
      : TEXTS.compare(String(a), String(b)));
}

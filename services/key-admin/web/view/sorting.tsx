/** Columns of tables, and the orders of lists by them. */

import type { Child } from "hono/jsx";
import { SORTED_MAX } from "../../domain/store/sorted.ts";
import { number } from "./texts.tsx";

/** A column of a table; `num` holds numbers. */
export type Column<T> = readonly [
  label: string,
  cell: (row: T) => Child,
  /**
   * `num` for digits below each other, `sum` for those with words below, `prose` for
   * sentences, which have the width of a card.
   */
  kind?: "num" | "sum" | "prose" | undefined,
  /** The name of the order by this column, where the list has one. */
  sort?: string,
];

/** The order of a list, and the addresses of its other orders. */
export interface Sorting {
  /** The name of an order, behind a `-` with the largest first. */
  current: string;
  to: (sort: string) => string;
}

/** Names and states begin with the first one; numbers and times with the largest. */
const ASCENDING = ["description", "name", "account", "status", "server"];

/** The order that a click on a column leads to. */
const clicked = (sort: string, current: string): string =>
  current === sort
    ? `-${sort}`
    : current === `-${sort}` || ASCENDING.includes(sort)
    ? sort
    : `-${sort}`;

/** The head of a column, with a link to the order by it if there is one. */
export function ColumnHead<T>(
  { column: [label, , kind, sort], sorting }: {
    column: Column<T>;
    sorting: Sorting | undefined;
  },
) {
  if (sort === undefined || sorting === undefined) {
    return <th scope="col" class={kind}>{label}</th>;
  }
  const { current, to } = sorting;
  const order = current === sort
    ? { "aria-sort": "ascending" as const }
    : current === `-${sort}`
    ? { "aria-sort": "descending" as const }
    : {};
  const arrow = current === sort ? " ↑" : current === `-${sort}` ? " ↓" : "";
  return (
    <th scope="col" class={kind} {...order}>
      <a href={to(clicked(sort, current))}>{label}{arrow}</a>
    </th>
  );
}

/** Says that the order of a list leaves out some rows, if it does. */
export const PartialNote = ({ isPartial }: { isPartial?: boolean }) =>
  isPartial && (
    <p class="help">
      The list is longer: only its first {number(SORTED_MAX)}{" "}
      rows, newest first, are compared for this order. Search or filter to
      compare fewer.
    </p>
  );

/** Chooses the order of a list where its columns have no heads: on narrow pages. */
export const SortChoice = <T,>(
  { action, columns, current, hidden }: {
    action: string;
    columns: readonly Column<T>[];
    current: string;
    hidden: Readonly<Record<string, string>>;
  },
) => (
  <form class="row search narrow-only" method="get" action={action}>
    {Object.entries(hidden).map(([name, value]) =>
      value !== "" && (
        <input key={name} type="hidden" name={name} value={value} />
      )
    )}
    <select name="sort" aria-label="Order">
      {columns.flatMap(([label, , , sort]) =>
        sort === undefined
          ? []
          : [sort, `-${sort}`].map((value) => (
            <option value={value} selected={value === current}>
              {label} {value === sort ? "↑" : "↓"}
            </option>
          ))
      )}
    </select>
    <button type="submit">Sort</button>
  </form>
);

import type { Child } from "hono/jsx";

/** Lists: their filters, searches, rows and further pages. */

/** Tabs that are links; the current one is marked. */
export const Tabs = <T extends string>({ label, tabs, current, to }: {
  label: string;
  tabs: readonly (readonly [value: T, label: string])[];
  current: string | undefined;
  to: (value: T) => string;
}) => (
  <nav aria-label={label}>
    {tabs.map(([value, text]) => (
      <a href={to(value)} aria-current={value === current ? "true" : undefined}>
        {text}
      </a>
    ))}
  </nav>
);

/** A column of a table; `num` holds numbers. */
export type Column<T> = readonly [
  label: string,
  cell: (row: T) => Child,
  kind?: "num",
];

/** A table, whose rows become cards on narrow pages; without rows, `empty`. The first column names the row. */
export const Table = <T,>({ caption, title, columns, rows, empty }: {
  caption: string;
  /** A visible caption instead. */
  title?: Child;
  columns: readonly Column<T>[];
  rows: readonly T[];
  empty?: Saying;
}) =>
  (empty && rows.length === 0) ? <Empty {...empty} /> : (
    <div class="table-box">
      <table>
        <caption class={title ? "" : "hidden"}>{title ?? caption}</caption>
        <thead>
          <tr>
            {columns.map(([label, , kind]) => (
              <th scope="col" class={kind}>{label}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {columns.map(([label, cell, kind], at) =>
                at === 0
                  ? <th key={label} scope="row">{cell(row)}</th>
                  : (
                    <td key={label} class={kind} data-label={label}>
                      {cell(row)}
                    </td>
                  )
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );

interface Saying {
  title: string;
  lead: string;
  children?: Child;
}

export const Empty = ({ title, lead, children }: Saying) => (
  <section class="card empty">
    <h2>{title}</h2>
    <p class="lead">{lead}</p>
    {children}
  </section>
);

/** A cell with a note in a second line, if there is one. */
export const Noted = ({ note, children }: { note: Child; children: Child }) => (
  <>
    {children}
    {note && <div class="help">{note}</div>}
  </>
);

/** Links to the newest and to older rows, where there are any. */
export const Pager = ({ after, next, to }: {
  /** The cursor of this page; empty: the first. */
  after: string;
  next: string | null;
  to: (after: string) => string;
}) =>
  (after || next) && (
    <nav class="row" aria-label="Pages">
      {after && <a class="button small" href={to("")}>Newest</a>}
      {next && <a class="button small" href={to(next)}>Older</a>}
    </nav>
  );

/** A search by what the placeholder says, whose result is the page at `action`. */
export const Search = ({ action, search, placeholder, hidden = {} }: {
  action: string;
  search: string;
  placeholder: string;
  hidden?: Readonly<Record<string, string>>;
}) => (
  <form class="row search" method="get" action={action} role="search">
    {Object.entries(hidden).map(([name, value]) => (
      <input type="hidden" name={name} value={value} />
    ))}
    <input
      name="search"
      aria-label={placeholder}
      type="search"
      value={search}
      placeholder={placeholder}
      maxlength={100}
      autocomplete="off"
      data-key-search=""
    />
    <button type="submit">Find</button>
  </form>
);

/** An address of the console with a query; empty values are left out. */
export function address(path: string, query: Record<string, string>): string {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** The parts that pages are made of: fields, forms, tables, notices. */

import type { Child, JSX } from "hono/jsx";
import { type Column, ColumnHead, type Sorting } from "./sorting.tsx";

/** A notice. Screen readers announce warnings and errors at once. */
export const Banner = ({ look, children }: {
  look: "good" | "bad" | "warn";
  children: Child;
}) => (
  <p class={`banner ${look}`} role={look === "good" ? "status" : "alert"}>
    {children}
  </p>
);

/** Text to copy, with a button that the script shows. */
export const Copyable = (
  { id, label, children }: { id: string; label: string; children: Child },
) => (
  <div class="row copyable">
    <pre id={id} tabindex={0} role="group" aria-label={label}>{children}</pre>
    <button type="button" data-copy={id} hidden>Copy</button>
  </div>
);

interface FactsProps {
  /** The values by their labels. */
  facts: Readonly<Record<string, Child>>;
  /** More classes: `totals` for large numbers. */
  look?: string;
}

/** Labelled values side by side. */
export const Facts = ({ facts, look = "" }: FactsProps) => (
  <dl class={`card facts ${look}`}>
    {Object.entries(facts).map(([name, value]) => (
      <div>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);

interface ShownOnceProps {
  label: string;
  value: string;
  /** The address of "Done". */
  next: string;
  /** The label of a box that must be ticked first. */
  confirm?: string;
  children?: Child;
}

/**
 * A value that is shown once. The script warns before the page is left, and clears the
 * value.
 */
export const ShownOnce = (
  { label, value, next, confirm = "I have stored it", children }:
    ShownOnceProps,
) => (
  <form method="get" action={next} data-secret="value">
    <Copyable id="value" label={label}>{value}</Copyable>
    {children}
    <div class="row between">
      <Box required>{confirm}</Box>
      <button class="primary" type="submit">Done</button>
    </div>
  </form>
);

/** A form with its buttons. The script prevents sending it twice. */
export const PostForm = (
  { hidden = {}, submit, look = "primary", cancel, more, children, ...form }: {
    id?: string;
    action: string;
    /** Needed for a form with a file. */
    enctype?: "multipart/form-data" | undefined;
    hidden?: Record<string, string | number> | [string, string][];
    submit: Child;
    look?: string;
    /** The address of "Cancel". */
    cancel?: string;
    more?: Child;
    children?: Child;
  },
) => (
  <form {...form} method="post" data-once="">
    {(Array.isArray(hidden) ? hidden : Object.entries(hidden))
      .map(([name, value]) => (
        <input key={name} type="hidden" name={name} value={String(value)} />
      ))}
    {children}
    <div class="row">
      <button class={look} type="submit">{submit}</button>
      {cancel && <a class="button" href={cancel}>Cancel</a>}
      {more}
    </div>
  </form>
);

/**
 * A labelled input; `error` or `help` is tied to it by `aria-describedby`. The first
 * one with an error has the focus.
 */
export function Field(
  { id, label, error, help, rows, options, value, ...rest }:
    & JSX.IntrinsicElements["input"]
    & {
      id: string;
      label: string;
      error?: string | undefined;
      help?: string;
      rows?: number;
      options?: readonly (readonly [value: string, label: string])[];
    },
) {
  const [note, noteId] = error ? [error, `${id}-error`] : [help, `${id}-help`];
  const common = {
    id,
    name: id,
    "aria-invalid": error && "true",
    "aria-describedby": note && noteId,
    autofocus: !!error,
  };
  return (
    <div>
      <label for={id}>{label}</label>
      {options
        ? (
          <select {...common}>
            {options.map(([option, text]) => (
              <option value={option} selected={option === value}>{text}</option>
            ))}
          </select>
        )
        : rows
        ? <textarea {...common} rows={rows} {...rest}>{value}</textarea>
        : <input {...common} value={value} {...rest} />}
      {note && <p class={error ? "help bad" : "help"} id={noteId}>{note}</p>}
    </div>
  );
}

/** Boxes with a common label, and why they were refused. */
export const Choices = ({ legend, id, error, children }: {
  legend: string;
  id?: string;
  error?: string | undefined;
  children: Child;
}) => (
  <fieldset aria-describedby={error && `${id}-error`}>
    <legend>{legend}</legend>
    {children}
    {error && <p class="help bad" id={`${id}-error`}>{error}</p>}
  </fieldset>
);

/** A tick box or, with `type="radio"`, one of several choices, with its label. */
export const Box = (
  { children, ...input }: JSX.IntrinsicElements["input"] & { children: Child },
) => (
  <label class="box">
    <input type="checkbox" value="on" {...input} /> {children}
  </label>
);

/** The current password; with another `label`, that of signing in. */
export const PasswordField = (
  { id = "password", ...input }: Partial<Parameters<typeof Field>[0]>,
) => (
  <Field
    id={id}
    name="password"
    label="Current password"
    type="password"
    required
    autocomplete="current-password"
    {...input}
  />
);

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

/**
 * A table, whose rows become cards on narrow pages; without rows, `empty`. The first
 * column names the row.
 */
export const Table = <T,>(
  { caption, title, columns, rows, empty, sorting }: {
    caption: string;
    /** A visible caption instead. */
    title?: Child;
    columns: readonly Column<T>[];
    rows: readonly T[];
    empty?: EmptyProps;
    sorting?: Sorting;
  },
) =>
  (empty && rows.length === 0) ? <Empty {...empty} /> : (
    <div class="table-box">
      <table>
        <caption class={title ? "" : "hidden"}>{title ?? caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <ColumnHead key="" column={column} sorting={sorting} />
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

/** What stands where there is nothing. */
export interface EmptyProps {
  title: string;
  lead: string;
  /** An action that changes this. */
  children?: Child;
}

/** Stands where there is nothing to show yet, and says what would appear. */
export const Empty = ({ title, lead, children }: EmptyProps) => (
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

/** Links to the newest and to older rows, or the next ones, where there are any. */
export const Pager = ({ after, next, to, isSorted = false }: {
  /** The cursor of this page; empty: the first. */
  after: string;
  next: string | null;
  to: (after: string) => string;
  /** Whether the rows have another order than the newest first. */
  isSorted?: boolean;
}) =>
  (after || next) && (
    <nav class="row" aria-label="Pages">
      {after && (
        <a class="button small" href={to("")}>
          {isSorted ? "First" : "Newest"}
        </a>
      )}
      {next && (
        <a class="button small" href={to(next)}>
          {isSorted ? "Next" : "Older"}
        </a>
      )}
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
    {Object.entries(hidden).map(([name, value]) =>
      value !== "" && (
        <input key={name} type="hidden" name={name} value={value} />
      )
    )}
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
  const pairs = Object.entries(query).filter(([, value]) => value !== "");
  return pairs.length === 0 ? path : `${path}?${new URLSearchParams(pairs)}`;
}

import { type Child, createContext, type JSX, useContext } from "hono/jsx";
import type { KeyRecord, KeyScope, Limits } from "@gateway/shared/keys/record";
import { isExpired } from "../domain/keys/key_record.ts";
import { FORM_TOKEN } from "./session.ts";

/** Components that several pages share. */

/** The top of a page: title, lead and actions. */
export const Head = ({ title, lead, children }: {
  title: Child;
  lead: Child;
  children?: Child;
}) => (
  <div class="head row between">
    <div>
      <h1>{title}</h1>
      <p class="lead">{lead}</p>
    </div>
    {children}
  </div>
);

/** Tabs that are links; the current one is marked. */
export const Tabs = ({ label, tabs, current }: {
  label: string;
  tabs: readonly (readonly [value: string, label: string, href: string])[];
  current: string;
}) => (
  <nav class="tabs" aria-label={label}>
    {tabs.map(([value, text, href]) => (
      <a href={href} aria-current={value === current ? "true" : undefined}>
        {text}
      </a>
    ))}
  </nav>
);

/** A column of a table. `head` is what names a row, `num` holds numbers. */
export type Column<T> = readonly [
  label: string,
  kind: "head" | "num" | undefined,
  cell: (row: T) => Child,
];

/** A table in a box, which shows rows as cards on narrow pages. */
export const Table = <T,>({ caption, columns, rows }: {
  caption: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
}) => (
  <div class="table-box">
    <table>
      <caption class="hidden">{caption}</caption>
      <thead>
        <tr>
          {columns.map(([label, kind]) => (
            <th scope="col" class={kind}>{label}</th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr>
            {columns.map(([label, kind, cell]) =>
              kind === "head"
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

/** Links to the neighbouring pages of a list, where there are any. */
export const Pager = ({ children, links }: {
  children?: Child;
  links: readonly (readonly [label: string, href: string | null])[];
}) => (
  <nav class="row between faint" aria-label="Pages">
    <p>{children}</p>
    <div class="row">
      {links.map(([label, href]) =>
        href && <a key={label} class="button small" href={href}>{label}</a>
      )}
    </div>
  </nav>
);

/** An address of the console with a query; empty values are left out. */
export function address(path: string, query: Record<string, string>): string {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

/** Something to notice; good news is announced politely, bad news at once. */
export const Banner = ({ look, children }: {
  look: "good" | "bad" | "warn" | "note";
  children: Child;
}) => (
  <div
    class={`banner ${look}`}
    role={look === "good" || look === "note" ? "status" : "alert"}
  >
    <Icon name={look === "good" ? "check" : "warn"} />
    <p>{children}</p>
  </div>
);

/** What is wrong with a whole form. */
export const FormError = ({ error }: { error: string | null | undefined }) =>
  error ? <Banner look="bad">{error}</Banner> : null;

/** Copies the text of the element `source`. Hidden without the script. */
export const CopyButton = (
  { source, look = "small" }: { source: string; look?: string },
) => <button class={look} type="button" data-copy={source} hidden>Copy</button>;

/** Line icons on a 20 x 20 grid, drawn for this console. */
const ICONS = {
  mark: "M3 5.5 10 2l7 3.5v9L10 18l-7-3.5zM7 8l3 2 3-2M10 10v4",
  plus: "M10 4v12M4 10h12",
  check: "M4 10.5 8 14.5 16 5.5",
  warn: "M10 3 2.5 16.5h15zM10 8.5v3.5M10 14.3h.01",
} as const;

/** A decorative icon. */
export const Icon = ({ name }: { name: keyof typeof ICONS }) => (
  <svg class="icon" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
    <path d={ICONS[name]} />
  </svg>
);

/** The session's token, for the forms of a page; empty where nobody is signed in. */
export const FormToken = createContext("");

/** A form of this session with its buttons. The script prevents sending it twice. */
export function PostForm(
  { action, hidden = {}, submit, look = "primary", cancel, children }: {
    action: string;
    hidden?: Readonly<Record<string, string | number>>;
    /** Label of the button that sends the form. */
    submit: string;
    /** Class names of that button. */
    look?: string;
    /** Where "Cancel" leads. */
    cancel?: string;
    children?: Child;
  },
) {
  const fields = { [FORM_TOKEN]: useContext(FormToken), ...hidden };
  return (
    <form method="post" action={action} data-once="">
      {Object.entries(fields).map(([name, value]) => (
        <input type="hidden" name={name} value={String(value)} />
      ))}
      {children}
      <div class="row end">
        {cancel && <a class="button" href={cancel}>Cancel</a>}
        <button class={look} type="submit">{submit}</button>
      </div>
    </form>
  );
}

/** A labelled input; `error` or `help` is tied to it by `aria-describedby`. */
export function Field({ id, label, note, error, help, ...input }:
  & JSX.IntrinsicElements["input"]
  & {
    id: string;
    label: Child;
    /** Shown in a softer colour beside the label. */
    note?: string;
    error?: string | undefined;
    help?: string;
  }) {
  const kind = error === undefined ? "help" : "error";
  return (
    <div class="field">
      <label for={id}>
        {label} {note && <span class="faint">{note}</span>}
      </label>
      <input
        id={id}
        name={id}
        aria-invalid={error === undefined ? undefined : "true"}
        aria-describedby={error ?? help ? `${id}-${kind}` : undefined}
        {...input}
      />
      {(error ?? help) && (
        <p class={`help ${kind}`} id={`${id}-${kind}`}>{error ?? help}</p>
      )}
    </div>
  );
}

/** A checkbox or radio button with its label. */
export const Box = (
  { children, ...input }: JSX.IntrinsicElements["input"] & { children: Child },
) => (
  <label class="box">
    <input type="checkbox" value="on" {...input} /> {children}
  </label>
);

/** The password that the owner has. */
export const PasswordField = ({ id = "password", ...input }: {
  label?: string;
  id?: string;
  autofocus?: boolean;
}) => (
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

/** What a key may be used for, in words. */
export const SCOPE_LABELS: Record<KeyScope, string> = {
  chat: "Chat",
  models: "List models",
  image: "Images",
  video: "Video",
  speech: "Speech",
};

/** The limits of a key, in words. */
export const LIMITS: readonly (readonly [keyof Limits, label: string])[] = [
  ["requestsPerMinute", "Requests per minute"],
  ["tokensPerMinute", "Tokens per minute"],
  ["tokensPerDay", "Tokens per day"],
  ["concurrency", "Concurrent requests"],
];

const NUMBER = new Intl.NumberFormat("en-US");

/** `1,234,567` */
export const number = (value: number): string => NUMBER.format(value);

/** `2026-11-22 09:30` */
export const utcText = (ms: number): string =>
  new Date(ms).toISOString().slice(0, 16).replace("T", " ");

/** A time for people. The script shows it in the reader's zone. */
export function Time(
  { ms, as }: { ms: number; as: "day" | "minute" | "relative" },
) {
  const iso = new Date(ms).toISOString();
  return (
    <time datetime={iso} data-time={iso} data-as={as}>
      {as === "day" ? iso.slice(0, 10) : `${utcText(ms)} UTC`}
    </time>
  );
}

/** `Enabled`, `Disabled`, `Expired`: a word and a colour, never a colour alone. */
export function Status(
  { keyRecord, nowMs }: { keyRecord: KeyRecord; nowMs: number },
) {
  if (isExpired(keyRecord, nowMs)) return <span class="badge">Expired</span>;
  return keyRecord.state === "enabled"
    ? <span class="badge good">Enabled</span>
    : <span class="badge">Disabled</span>;
}

/** `3 hours ago`, `in 2 days`, a date further away, or `Never`. */
export function Moment({ ms, nowMs }: { ms: number | null; nowMs: number }) {
  if (ms === null) return <span class="faint">Never</span>;
  return <Time ms={ms} as={ms - nowMs < SOON_MS ? "relative" : "day"} />;
}

/** An end within this time is shown as a distance. */
const SOON_MS = 7 * 86_400_000;

import { type Child, createContext, type JSX, useContext } from "hono/jsx";
import { LAST_USE_DAYS_KEPT } from "@gateway/shared/keys/limiter_state";
import type { KeyName, KeyRecord } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import { isExpired } from "../domain/keys/key_record.ts";
import { limitWords } from "../domain/keys/settings.ts";
import { FORM_TOKEN } from "./session.ts";

/** Components that several pages share. */

/** Tabs that are links; the current one is marked. */
export const Tabs = <T extends string>({ label, tabs, current, to }: {
  label: string;
  tabs: readonly (readonly [value: T, label: string])[];
  current: string | undefined;
  /** The address of a tab. */
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

/** A table in a box, which shows rows as cards on narrow pages. The first column names the row. */
export const Table = <T,>({ caption, title, columns, rows }: {
  /** What it shows, for screen readers. */
  caption: string;
  /** The same for everybody, in its place. */
  title?: Child;
  columns: readonly Column<T>[];
  rows: readonly T[];
}) => (
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

/** What a page says while it has nothing to show. */
export const Empty = (
  { title, lead, children }: { title: string; lead: string; children?: Child },
) => (
  <section class="card empty">
    <h2>{title}</h2>
    <p class="lead">{lead}</p>
    {children}
  </section>
);

/** Named values. */
export const Facts = (
  { facts, look = "" }: {
    facts: Readonly<Record<string, Child>>;
    look?: string;
  },
) => (
  <dl class={`card facts ${look}`}>
    {Object.entries(facts).map(([name, value]) => (
      <div>
        <dt>{name}</dt>
        <dd>{value}</dd>
      </div>
    ))}
  </dl>
);

/** Links to other pages of a list that begins with the newest rows, where there are any. */
export const Pager = (
  { newest, older }: { newest: string | null; older: string | null },
) =>
  (newest || older) && (
    <nav class="row" aria-label="Pages">
      {newest && <a class="button small" href={newest}>Newest</a>}
      {older && <a class="button small" href={older}>Older</a>}
    </nav>
  );

/** A search, whose result is the page at `action`. */
export const Search = (
  { action, label, search, placeholder, hidden = {} }: {
    action: string;
    label: string;
    search: string;
    placeholder: string;
    hidden?: Readonly<Record<string, string>>;
  },
) => (
  <form class="row search" method="get" action={action} role="search">
    {Object.entries(hidden).map(([name, value]) => (
      <input type="hidden" name={name} value={value} />
    ))}
    <label class="hidden" for="search">{label}</label>
    <input
      id="search"
      name="search"
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

/** An example request. The key is in a variable to keep it out of the shell's history. */
export const Curl = ({ apiUrl, catalog, models = [] }: {
  apiUrl: string;
  catalog: Catalog;
  /** Those that the key may use; if empty, all. */
  models?: readonly string[];
}) => (
  <Copyable id="curl" label="Example request">
    {`curl ${apiUrl}/chat/completions \\
  -H "Authorization: Bearer $API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${exampleModel(catalog, models)}",
       "messages": [{"role": "user", "content": "Hello"}]}'`}
  </Copyable>
);

/** Leads to the page "Try it", with a model that the key may use. */
export const TryLink = (
  { catalog, models }: { catalog: Catalog; models: readonly string[] },
) => (
  <a
    class="button small"
    href={address("/try", { model: exampleModel(catalog, models) })}
  >
    Try it
  </a>
);

/** The first model that the key may use and that is configured, as long as there is one. */
function exampleModel(catalog: Catalog, models: readonly string[]): string {
  const offered = [...catalog.keys()];
  const usable = offered.filter((id) => models.includes(id));
  return [...usable, ...models, ...offered][0] ?? "";
}

/** A value that is shown once. The script warns before the page is left, and clears the value. */
export const ShownOnce = (
  { label, value, next, confirm = "I have stored it", children }: {
    /** The name of the value. */
    label: string;
    value: string;
    /** Where "Done" leads. */
    next: string;
    /** What has to be ticked first. */
    confirm?: string;
    children?: Child;
  },
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

/** The session's token, for the forms of a page; empty without a session. */
export const FormToken = createContext("");

/** A form of this session with its buttons. The script prevents sending it twice. */
export function PostForm(
  { id, action, hidden = {}, submit, look = "primary", cancel, more, children }:
    {
      id?: string;
      action: string;
      hidden?: Readonly<Record<string, string | number>>;
      /** Label of the button that sends the form. */
      submit: Child;
      /** Class names of that button. */
      look?: string;
      /** Where "Cancel" leads. */
      cancel?: string;
      /** Other buttons. */
      more?: Child;
      children?: Child;
    },
) {
  const fields = { [FORM_TOKEN]: useContext(FormToken), ...hidden };
  return (
    <form id={id} method="post" action={action} data-once="">
      {Object.entries(fields).map(([name, value]) => (
        <input type="hidden" name={name} value={String(value)} />
      ))}
      {children}
      <div class="row">
        <button class={look} type="submit">{submit}</button>
        {cancel && <a class="button" href={cancel}>Cancel</a>}
        {more}
      </div>
    </form>
  );
}

/** A labelled input; `error` or `help` is tied to it by `aria-describedby`. */
export function Field(
  { id, label, error, help, rows, options, value, ...rest }:
    & JSX.IntrinsicElements["input"]
    & {
      id: string;
      label: string;
      error?: string | undefined;
      help?: string;
      /** Of a text of several lines. */
      rows?: number;
      /** Values to choose from, with their labels. */
      options?: readonly (readonly [value: string, label: string])[];
    },
) {
  const [note, kind] = error ? [error, "error"] : [help, "help"];
  const common = {
    id,
    name: id,
    "aria-invalid": error && "true",
    "aria-describedby": note && `${id}-${kind}`,
  };
  return (
    <div class="field">
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
      {note && <p class={`help ${kind}`} id={`${id}-${kind}`}>{note}</p>}
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

/** The current password. */
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

/** `Tokens per day` for `tokensPerDay`, `tokens_per_day` or `tokens.per.day` */
export const labelOf = (name: string): string =>
  name[0]?.toUpperCase() +
  limitWords(name.slice(1), " ").replaceAll(/[._]/g, " ");

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

/** `Enabled`, `Expires soon`, `Disabled`, `Expired`: words and a colour, never a colour alone. */
export function Status(
  { keyRecord, nowMs }: { keyRecord: KeyRecord; nowMs: number },
) {
  if (isExpired(keyRecord, nowMs)) return <span class="badge">Expired</span>;
  if (keyRecord.state === "disabled") {
    return <span class="badge">Disabled</span>;
  }
  return (keyRecord.expiresAtMs ?? Infinity) - nowMs < SOON_MS
    ? <span class="badge warn">Expires soon</span>
    : <span class="badge good">Enabled</span>;
}

/** The other key of a rotation, with a link if it is one of those `present`. */
export function Rotation({ keyRecord, nowMs, present }: {
  keyRecord: KeyRecord;
  nowMs: number;
  present: ReadonlySet<string>;
}) {
  const { replaces, replacedBy, expiresAtMs } = keyRecord;
  const named = ([id, hint]: KeyName) =>
    present.has(id) ? <a href={`/keys/${id}`}>{hint}</a> : hint;
  return (
    <>
      {replaces && <p class="help">Replaces {named(replaces)}</p>}
      {replacedBy && (
        <p class="help">
          Replaced by {named(replacedBy)}
          {expiresAtMs !== null && (
            <>
              , {isExpired(keyRecord, nowMs) ? "ended" : "ends"}{" "}
              <Moment ms={expiresAtMs} nowMs={nowMs} />
            </>
          )}
        </p>
      )}
    </>
  );
}

/** When a key was last used, as far as that is still known. */
export function LastUse({ ms, keyRecord, nowMs }: {
  ms: number | null;
  keyRecord: KeyRecord;
  nowMs: number;
}) {
  const knownMs = nowMs - LAST_USE_DAYS_KEPT * 86_400_000;
  return ms === null && keyRecord.createdAtMs < knownMs
    ? <span class="faint">Not in {LAST_USE_DAYS_KEPT} days</span>
    : <Moment ms={ms} nowMs={nowMs} />;
}

/** `3 hours ago`, `in 2 days`, a date further away, or `Never`. */
export function Moment({ ms, nowMs }: { ms: number | null; nowMs: number }) {
  if (ms === null) return <span class="faint">Never</span>;
  return <Time ms={ms} as={ms - nowMs < SOON_MS ? "relative" : "day"} />;
}

/** A time before now or within this period is shown relative to now. */
const SOON_MS = 7 * 86_400_000;

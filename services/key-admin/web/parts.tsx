import { type Child, createContext, useContext } from "hono/jsx";
import type { KeyRecord, KeyScope } from "@gateway/shared/keys/record";
import { isExpired } from "../domain/keys/key_record.ts";
import { FORM_TOKEN } from "./session.ts";

/** Components that several pages share. */

/** The top of a page: title, lead and actions. */
export function Head({ title, lead, children }: {
  title: Child;
  lead: Child;
  children?: Child;
}) {
  return (
    <div class="head row between">
      <div>
        <h1>{title}</h1>
        <p class="lead">{lead}</p>
      </div>
      {children}
    </div>
  );
}

/** Tabs that are links; the current one is marked. */
export function Tabs({ label, tabs, current }: {
  label: string;
  tabs: readonly (readonly [value: string, label: string, href: string])[];
  current: string;
}) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(([value, text, href]) => (
        <a href={href} aria-current={value === current ? "true" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}

/** A table in a box. */
export function Table({ look, caption, columns, isWide = false, children }: {
  /** Class names; `cards` shows rows as cards on narrow pages. */
  look: string;
  caption: string;
  columns: readonly (readonly [label: string, isNumber?: boolean])[];
  /** May need to be scrolled sideways, also by keyboard. */
  isWide?: boolean;
  children: Child;
}) {
  const region = { role: "region", "aria-label": caption, tabindex: 0 };
  return (
    <div class={isWide ? "table-box plain" : "table-box"} {...isWide && region}>
      <table class={look}>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(([label, isNumber]) => (
              <th scope="col" class={isNumber ? "num" : undefined}>{label}</th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** Links to other pages of a list; one without an address is dimmed. */
export function Pager({ children, links }: {
  children?: Child;
  links: readonly (readonly [label: string, href: string | null])[];
}) {
  return (
    <nav class="row between faint" aria-label="Pages">
      <p>{children}</p>
      <div class="row">
        {links.map(([label, href]) =>
          href === null
            ? (
              <span key={label} class="button small" aria-disabled="true">
                {label}
              </span>
            )
            : <a key={label} class="button small" href={href}>{label}</a>
        )}
      </div>
    </nav>
  );
}

/** An address of the console with a query; empty values are left out. */
export function address(path: string, query: Record<string, string>): string {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  return given.length === 0 ? path : `${path}?${new URLSearchParams(given)}`;
}

export function Banner({ look, icon, role, children }: {
  look: "good" | "bad" | "warn" | "note";
  icon: IconName;
  role?: "alert" | "status";
  children: Child;
}) {
  return (
    <div class={`banner ${look}`} role={role}>
      <Icon name={icon} />
      <div>{children}</div>
    </div>
  );
}

/** Copies the text of the element `source`. Hidden without the script. */
export function CopyButton(
  { source, label = "Copy", look = "quiet small", isIcon = false }: {
    source: string;
    label?: string;
    look?: string;
    /** The label is for screen readers only. */
    isIcon?: boolean;
  },
) {
  return (
    <button
      class={isIcon ? "quiet small only-icon" : look}
      type="button"
      data-copy={source}
      title={isIcon ? label : undefined}
      hidden
    >
      <Icon name="copy" />{" "}
      <span class={isIcon ? "hidden" : undefined} data-copy-label="">
        {label}
      </span>
    </button>
  );
}

/** Line icons on a 20 x 20 grid, drawn for this console. */
const ICONS = {
  mark: "M3 5.5 10 2l7 3.5v9L10 18l-7-3.5zM7 8l3 2 3-2M10 10v4",
  key: "M11.5 8.5 17 3m-2.5 2.5 2 2M12 12a4 4 0 1 1-1-4 4 4 0 0 1 1 4z",
  chart: "M3 17h14M5.5 14V9M10 14V4M14.5 14v-3",
  list: "M7 5h10M7 10h10M7 15h10M3.5 5h.01M3.5 10h.01M3.5 15h.01",
  person:
    "M10 10a3.25 3.25 0 1 0 0-6.5 3.25 3.25 0 0 0 0 6.5zM3.5 17a6.5 6.5 0 0 1 13 0",
  leave: "M8 3.5H4v13h4M13 6.5l3.5 3.5L13 13.5M16 10H8",
  plus: "M10 4v12M4 10h12",
  search: "M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM13 13l4 4",
  check: "M4 10.5 8 14.5 16 5.5",
  warn: "M10 3 2.5 16.5h15zM10 8.5v3.5M10 14.3h.01",
  copy: "M7 7V3.5h9.5V13H13M3.5 7H13v9.5H3.5z",
  edit: "M4 16l.8-3.5L13.5 3.8l2.7 2.7-8.7 8.7z",
  rotate: "M16 7A6.5 6.5 0 0 0 4 8M4 13a6.5 6.5 0 0 0 12-1M16 3v4h-4M4 17v-4h4",
  trash: "M3.5 5.5h13M8 5.5v-2h4v2M5 5.5l.8 11h8.4l.8-11M8.5 9v4.5M11.5 9v4.5",
  power: "M10 3v6.5M6 5.2a6 6 0 1 0 8 0",
  back: "M12 4.5 6.5 10l5.5 5.5",
  shield: "M10 2.5 16 5v5c0 4-2.7 6.4-6 7.5C6.7 16.4 4 14 4 10V5z",
  download: "M10 3v9.5M6 9l4 4 4-4M3.5 17h13",
} as const;

type IconName = keyof typeof ICONS;

/** A decorative icon. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={ICONS[name]} />
    </svg>
  );
}

/** The session's token, for the forms of a page. */
export const FormToken = createContext("");

/** A form of this session, with its hidden fields. The script prevents sending it twice. */
export function PostForm({ action, hidden = {}, children }: {
  action: string;
  hidden?: Readonly<Record<string, string | number>>;
  children: Child;
}) {
  const fields = Object.entries({
    [FORM_TOKEN]: useContext(FormToken),
    ...hidden,
  });
  return (
    <form method="post" action={action} data-once="">
      {fields.map(([name, value]) => (
        <input type="hidden" name={name} value={String(value)} />
      ))}
      {children}
    </form>
  );
}

/** A labelled input; `error` is tied to it by `aria-describedby`. */
export function Field({ id, label, note, error, help, children, ...input }: {
  id: string;
  label: Child;
  /** Shown in a softer colour beside the label. */
  note?: string;
  error?: string | undefined;
  help?: Child;
  /** A button inside the input. */
  children?: Child;
  name?: string;
  value?: string;
  type?: string;
  required?: boolean;
  readonly?: boolean;
  autofocus?: boolean;
  autocomplete?: string;
  maxlength?: number;
  minlength?: number;
  pattern?: string;
  title?: string;
  placeholder?: string;
  inputmode?: "text" | "numeric";
  dir?: "auto";
  spellcheck?: boolean;
}) {
  const described = error !== undefined
    ? `${id}-error`
    : help === undefined
    ? undefined
    : `${id}-help`;
  return (
    <div class="field">
      <label for={id}>
        {label} {note && <span class="faint">{note}</span>}
      </label>
      <div class={children === undefined ? undefined : "with-button"}>
        <input
          id={id}
          name={id}
          aria-invalid={error === undefined ? undefined : "true"}
          aria-describedby={described}
          {...input}
        />
        {children}
      </div>
      {help && <p class="help" id={`${id}-help`}>{help}</p>}
      <FieldError id={id} error={error} />
    </div>
  );
}

/** What is wrong with the field `id`. */
export const FieldError = (
  { id, error }: { id: string; error: string | undefined },
) => error ? <p class="field-error" id={`${id}-error`}>{error}</p> : null;

/** A checkbox or radio button with its label. */
export function Box({ type = "checkbox", children, ...input }: {
  type?: "checkbox" | "radio";
  name?: string;
  value?: string;
  checked?: boolean;
  required?: boolean;
  autofocus?: boolean;
  "data-stored"?: "";
  children: Child;
}) {
  return (
    <label class="box">
      <input type={type} value="on" {...input} />
      {children}
    </label>
  );
}

/** The password that the owner has. */
export const PasswordField = (
  { label = "Current password", id = "password", isNext = false }: {
    label?: string;
    id?: string;
    isNext?: boolean;
  },
) => (
  <Field
    id={id}
    name="password"
    label={label}
    type="password"
    required
    autocomplete="current-password"
    autofocus={isNext}
  />
);

/** What is wrong with a whole form. */
export const FormError = ({ error }: { error: string | null | undefined }) =>
  error
    ? (
      <Banner look="bad" icon="warn" role="alert">
        <p>{error}</p>
      </Banner>
    )
    : null;

/** What a key may be used for, in words. */
export const SCOPE_LABELS: Record<KeyScope, string> = {
  chat: "Chat",
  models: "List models",
  image: "Images",
  video: "Video",
  speech: "Speech",
};

/** Larger numbers are shortened; a tooltip has the exact value. */
const SHORT_FROM = 10_000;
const NUMBER = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", {
  notation: "compact",
  maximumFractionDigits: 1,
});

/** `1,234,567` */
export const number = (value: number): string => NUMBER.format(value);

/** `1.2M` */
export const shortNumber = (value: number): string => SHORT.format(value);

/** `1.2M` from ten thousand on, with the exact number as a tooltip. */
export function Count({ value }: { value: number }) {
  if (value < SHORT_FROM) return <span>{number(value)}</span>;
  return <span title={number(value)}>{shortNumber(value)}</span>;
}

type TimeStyle = "day" | "minute" | "relative";

/** A time for people. */
export function Time(
  { ms, as }: { ms: number; as: TimeStyle },
) {
  const iso = new Date(ms).toISOString();
  return (
    <time datetime={iso} data-as={as}>
      {as === "day"
        ? iso.slice(0, 10)
        : `${iso.slice(0, 16).replace("T", " ")} UTC`}
    </time>
  );
}

/** `Enabled`, `Disabled`, `Expired`: a word and a colour, never a colour alone. */
export function Status(
  { keyRecord, nowMs }: { keyRecord: KeyRecord; nowMs: number },
) {
  if (isExpired(keyRecord, nowMs)) {
    return <span class="badge">Expired</span>;
  }
  return keyRecord.state === "enabled"
    ? <span class="badge good">Enabled</span>
    : <span class="badge">Disabled</span>;
}

/** `3 hours ago`, or `Never`. */
export function LastUse({ ms }: { ms: number | null }) {
  return ms === null
    ? <span class="faint">Never</span>
    : <Time ms={ms} as="relative" />;
}

/** An expiry within this time is highlighted. */
const SOON_MS = 7 * 86_400_000;

/** `Never`, a date ahead, or a date gone by. */
export function Expiry(
  { keyRecord, nowMs }: { keyRecord: KeyRecord; nowMs: number },
) {
  const { expiresAtMs } = keyRecord;
  if (expiresAtMs === null) return <span class="faint">Never</span>;
  const isSoon = expiresAtMs - nowMs < SOON_MS;
  return (
    <span class={isSoon && expiresAtMs > nowMs ? "soon" : ""}>
      <Time ms={expiresAtMs} as={isSoon ? "relative" : "day"} />
    </span>
  );
}

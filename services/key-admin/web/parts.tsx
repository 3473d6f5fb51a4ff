import type { Child, JSX } from "hono/jsx";

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

/** A value that is shown once. The script warns before the page is left, and clears the value. */
export const ShownOnce = (
  { label, value, next, confirm = "I have stored it", children }: {
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

/** A form with its buttons. The script prevents sending it twice. */
export const PostForm = (
  { hidden = {}, submit, look = "primary", cancel, more, children, ...form }: {
    id?: string;
    action: string;
    /** Of a form with a file: `multipart/form-data`. */
    enctype?: "multipart/form-data" | undefined;
    hidden?: Readonly<Record<string, string | number>>;
    submit: Child;
    look?: string;
    /** Where "Cancel" leads. */
    cancel?: string;
    more?: Child;
    children?: Child;
  },
) => (
  <form {...form} method="post" data-once="">
    {Object.entries(hidden).map(([name, value]) => (
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

/** A labelled input; `error` or `help` is tied to it by `aria-describedby`. The first one with an error has the focus. */
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

export const Box = (
  { children, ...input }: JSX.IntrinsicElements["input"] & { children: Child },
) => (
  <label class="box">
    <input type="checkbox" value="on" {...input} /> {children}
  </label>
);

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

import { type Child, createContext, useContext } from "hono/jsx";
import { z } from "zod";
import { PASSWORD_CHARS_MAX } from "../domain/sign_in/password.ts";
import { type ConsoleContext, Refused } from "./context.ts";
import { Banner } from "./parts.tsx";
import { FORM_TOKEN } from "./session.ts";

/** Forms: how they are read, and what they are made of. */

/** Fields that may come several times. */
const LISTS = ["scopes"];

/**
 * The posted form, with exactly the fields the page has. A field more, or one
 * twice, is not from our page: 400 (mass assignment, ASVS 15.3.3, API3).
 */
export function readForm<T extends Record<string, z.ZodType>>(
  c: ConsoleContext,
  shape: T,
): z.infer<z.ZodObject<T>> {
  const form = c.get("form");
  const names = [...new Set(form.keys())].filter((name) => name !== FORM_TOKEN);
  const parsed = z.strictObject(shape).safeParse(
    Object.fromEntries(names.map((name) => [name, valueOf(form, name)])),
  );
  if (parsed.success) return parsed.data;
  throw new Refused(400, `The form is not valid: ${mistakeIn(parsed.error)}`);
}

/** In words that do not repeat what was sent. */
function mistakeIn({ issues: [issue] }: z.ZodError): string {
  const field = String(issue?.path[0] ?? "");
  switch (issue?.code) {
    case "unrecognized_keys":
      return "it has an unknown field";
    case "too_big":
      return `the field ${field} is too long`;
    default:
      return `the field ${field} is missing or malformed`;
  }
}

function valueOf(form: URLSearchParams, name: string): string | string[] {
  const all = form.getAll(name);
  if (LISTS.includes(name)) return all;
  if (all.length > 1) {
    throw new Refused(400, `The form has the field ${name} more than once`);
  }
  return all[0] ?? "";
}

/** A line of text, checked for its meaning later. */
export const text = (charsMax: number): z.ZodString => z.string().max(charsMax);

/** A secret of ours, or its digest: 43 characters. */
export const secretText: z.ZodString = text(60);

/** An e-mail address, checked by `parseEmail`. */
export const emailText: z.ZodString = text(300);

/** A path of the console, checked by `localPath`. */
export const pathText: z.ZodString = text(300);

/** A password; its length in characters is checked where it is hashed. */
export const passwordText: z.ZodString = text(PASSWORD_CHARS_MAX * 4);

/** A checkbox: `on` when ticked, else absent. */
export const box = z.literal("on").optional();

/** The version of a key that the page was made from. */
export const version = z.string().regex(/^\d{1,15}$/).transform(Number);

/** The session's token, for the forms of a page. */
export const FormToken = createContext("");

/** A form of this session, with its hidden fields. The script sends it once. */
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
  /** Said more quietly beside the label. */
  note?: string;
  error?: string | undefined;
  help?: Child;
  /** Stands over the input, as a button does. */
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

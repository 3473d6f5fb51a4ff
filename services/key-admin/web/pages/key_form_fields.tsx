import type { JSX } from "hono/jsx/jsx-runtime";
import { KEY_SCOPES } from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import { FIELD_CHARS_MAX, LIMIT_FORM, LIMIT_PATTERN } from "../key_form.ts";
import { FieldError } from "./frame.tsx";
import type { KeyFormProps } from "./key_form.tsx";
import { SCOPE_LABELS } from "./values.tsx";

/** The parts of a key's form. */

/** Fields that may have a mistake, from top to bottom. */
const FIELDS = [
  ...["description", "expiresAtMs", "scopes"],
  ...["rpm", "tpm", "tpd", "concurrency", "models"],
] as const;

/** The field to go on with: the first that has a mistake. */
function focusOf(errors: KeyFormProps["errors"]): string {
  return FIELDS.find((name) => errors.has(name)) ?? "description";
}

/** Ties a field to the mistake below it. */
function mistake(id: string, error: string | undefined) {
  return error === undefined
    ? {}
    : { "aria-invalid": "true", "aria-describedby": id } as const;
}

/** What the key is for. */
export function DescriptionField(
  { values, errors }: KeyFormProps,
): JSX.Element {
  const error = errors.get("description");
  return (
    <div class="field">
      <label for="description">Description</label>
      <input
        id="description"
        name="description"
        value={values.description}
        dir="auto"
        maxlength={KEY_LIMITS.descriptionCharsMax * 2}
        placeholder="Billing service, production"
        required
        autofocus={focusOf(errors) === "description"}
        autocomplete="off"
        {...mistake("description-error", error)}
      />
      <FieldError id="description-error" message={error} />
    </div>
  );
}

type Choice = readonly [value: string, label: string];
const KEEP: Choice = ["keep", "As it is"];
const EXPIRIES: readonly Choice[] = [
  ["never", "Never"],
  ["7d", "In 7 days"],
  ["30d", "In 30 days"],
  ["90d", "In 90 days"],
  ["365d", "In one year"],
  ["date", "At the end of a day (UTC)"],
];

/** When it ends; the day is shown where it is asked for. */
export function ExpiryField(
  { values, errors, purpose }: KeyFormProps,
): JSX.Element {
  const error = errors.get("expiresAtMs");
  const isKeepable = purpose.kind === "edit" && purpose.expiresAtMs !== null;
  const choices = isKeepable ? [KEEP, ...EXPIRIES] : EXPIRIES;
  return (
    <div class="field pair">
      <div>
        <label for="expiry">Expires</label>
        <select id="expiry" name="expiry" data-shows="expiry-date">
          {choices.map(([value, label]) => (
            <option value={value} selected={value === values.expiry}>
              {label}
            </option>
          ))}
        </select>
      </div>
      <div id="expiry-date" data-shown-for="date">
        <label for="expiry_date">Day</label>
        <input
          id="expiry_date"
          name="expiry_date"
          type="date"
          value={values.expiryDate}
          autofocus={focusOf(errors) === "expiresAtMs"}
          {...mistake("expiry-error", error)}
        />
      </div>
      <FieldError id="expiry-error" message={error} />
    </div>
  );
}

/** What it may be used for. */
export function ScopeFields({ values, errors }: KeyFormProps): JSX.Element {
  const error = errors.get("scopes");
  return (
    <fieldset
      class="field"
      aria-describedby={error === undefined ? undefined : "scopes-error"}
    >
      <legend>May use</legend>
      <div class="boxes">
        {KEY_SCOPES.map((scope, at) => (
          <label class="box">
            <input
              type="checkbox"
              name="scopes"
              value={scope}
              checked={values.scopes.includes(scope)}
              autofocus={at === 0 && focusOf(errors) === "scopes"}
            />
            {SCOPE_LABELS[scope]}
          </label>
        ))}
      </div>
      <FieldError id="scopes-error" message={error} />
    </fieldset>
  );
}

const LIMIT_FIELDS = [
  ["rpm", "Requests per minute"],
  ["tpm", "Tokens per minute"],
  ["tpd", "Tokens per day"],
  ["concurrency", "Requests at a time"],
] as const;

/** How much it may be used. */
export function LimitFields({ values, errors }: KeyFormProps): JSX.Element {
  return (
    <fieldset class="field">
      <legend>
        Limits <span class="faint">– leave empty for no limit</span>
      </legend>
      <div class="grid">
        {LIMIT_FIELDS.map(([name, label]) => {
          const error = errors.get(name);
          return (
            <div>
              <label for={name}>{label}</label>
              <input
                id={name}
                name={name}
                value={values[name]}
                inputmode="numeric"
                pattern={LIMIT_PATTERN}
                title={LIMIT_FORM}
                maxlength={FIELD_CHARS_MAX.limit}
                autocomplete="off"
                placeholder="No limit"
                autofocus={focusOf(errors) === name}
                {...mistake(`${name}-error`, error)}
              />
              <FieldError id={`${name}-error`} message={error} />
            </div>
          );
        })}
      </div>
    </fieldset>
  );
}

/** Which models it may use. */
export function ModelsField({ values, errors }: KeyFormProps): JSX.Element {
  const error = errors.get("models");
  return (
    <div class="field">
      <label for="models">
        Models <span class="faint">– leave empty for all</span>
      </label>
      <input
        id="models"
        name="models"
        value={values.models}
        maxlength={FIELD_CHARS_MAX.models}
        placeholder="neutral-3.7-plus, small-1"
        autofocus={focusOf(errors) === "models"}
        autocomplete="off"
        {...mistake("models-error", error)}
      />
      <FieldError id="models-error" message={error} />
    </div>
  );
}

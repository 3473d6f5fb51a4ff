import type { JSX } from "hono/jsx/jsx-runtime";
import { KEY_SCOPES } from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import { type KeyFormValues, LIMIT_FORM, LIMIT_PATTERN } from "../key_form.ts";
import {
  FieldError,
  FormErrors,
  FormToken,
  type Frame,
  Page,
} from "./frame.tsx";
import { SCOPE_LABELS } from "./values.tsx";

/** What the form of a key shows. */
export interface KeyFormProps {
  frame: Frame;
  values: KeyFormValues;
  /** Mistakes by field; those of no field under "". */
  errors: ReadonlyMap<string, string>;
  /** A new key carries a nonce, an existing one its version. */
  purpose:
    | { kind: "create"; nonce: string }
    | {
      kind: "edit";
      keyId: string;
      version: number;
      expiresAtMs: number | null;
    };
}

const LIMIT_FIELDS = [
  ["rpm", "Requests per minute"],
  ["tpm", "Tokens per minute"],
  ["tpd", "Tokens per day"],
  ["concurrency", "Requests at a time"],
] as const;

/** Makes or edits a key. */
export function KeyFormPage(props: KeyFormProps): JSX.Element {
  const { frame, errors, purpose } = props;
  const isNew = purpose.kind === "create";
  const title = isNew ? "Create key" : "Edit key";
  const back = isNew ? "/keys" : `/keys/${purpose.keyId}`;
  return (
    <Page title={title} frame={frame} section="keys">
      <section class="card form-card" data-dialog-body="">
        <h1>{title}</h1>
        <form
          method="post"
          action={isNew ? "/keys" : `/keys/${purpose.keyId}/edit`}
          data-once=""
        >
          <FormToken frame={frame} />
          {isNew
            ? <input type="hidden" name="nonce" value={purpose.nonce} />
            : (
              <input
                type="hidden"
                name="version"
                value={String(purpose.version)}
              />
            )}
          <FormErrors
            errors={[...errors.entries()].filter(([n]) => n === "").map((
              [, e],
            ) => e)}
          />
          <DescriptionField {...props} />
          <ExpiryField {...props} />
          <ScopeFields {...props} />
          <LimitFields {...props} />
          <ModelsField {...props} />
          <div class="actions">
            <a class="button" href={back} data-close="">Cancel</a>
            <button class="primary" type="submit">
              {isNew ? "Create key" : "Save changes"}
            </button>
          </div>
        </form>
      </section>
    </Page>
  );
}

function DescriptionField({ values, errors }: KeyFormProps): JSX.Element {
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
        autofocus
        autocomplete="off"
        aria-invalid={error === undefined ? undefined : "true"}
        aria-describedby={error === undefined ? undefined : "description-error"}
      />
      <FieldError id="description-error" message={error} />
    </div>
  );
}

function ExpiryField({ values, errors, purpose }: KeyFormProps): JSX.Element {
  const error = errors.get("expiresAtMs");
  const isKeepable = purpose.kind === "edit" && purpose.expiresAtMs !== null;
  const keep: [value: string, label: string][] = isKeepable
    ? [["keep", "As it is"]]
    : [];
  const choices: [value: string, label: string][] = [
    ...keep,
    ["never", "Never"],
    ["7d", "In 7 days"],
    ["30d", "In 30 days"],
    ["90d", "In 90 days"],
    ["365d", "In one year"],
    ["date", "At the end of a day (UTC)"],
  ];
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
          aria-invalid={error === undefined ? undefined : "true"}
          aria-describedby={error === undefined ? undefined : "expiry-error"}
        />
      </div>
      <FieldError id="expiry-error" message={error} />
    </div>
  );
}

function ScopeFields({ values, errors }: KeyFormProps): JSX.Element {
  const error = errors.get("scopes");
  return (
    <fieldset class="field">
      <legend>May use</legend>
      <div class="boxes">
        {KEY_SCOPES.map((scope) => (
          <label class="box">
            <input
              type="checkbox"
              name="scopes"
              value={scope}
              checked={values.scopes.includes(scope)}
            />
            {SCOPE_LABELS[scope]}
          </label>
        ))}
      </div>
      <FieldError id="scopes-error" message={error} />
    </fieldset>
  );
}

function LimitFields({ values, errors }: KeyFormProps): JSX.Element {
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
                maxlength={20}
                autocomplete="off"
                placeholder="No limit"
                aria-invalid={error === undefined ? undefined : "true"}
                aria-describedby={error === undefined
                  ? undefined
                  : `${name}-error`}
              />
              <FieldError id={`${name}-error`} message={error} />
            </div>
          );
        })}
      </div>
    </fieldset>
  );
}

function ModelsField({ values, errors }: KeyFormProps): JSX.Element {
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
        maxlength={8_000}
        placeholder="neutral-3.7-plus, small-1"
        autocomplete="off"
        aria-invalid={error === undefined ? undefined : "true"}
        aria-describedby={error === undefined ? undefined : "models-error"}
      />
      <FieldError id="models-error" message={error} />
    </div>
  );
}

import { KEY_SCOPES, type KeyRecord } from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import { mintSecret } from "../domain/store/secret.ts";
import {
  actorOf,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  type Routes,
} from "./context.ts";
import { Box, Field, FieldError, PostForm, SCOPE_LABELS } from "./parts.tsx";
import { readForm, secretText, version } from "./forms.ts";
import {
  FIELD_CHARS_MAX,
  formOf,
  KEY_FORM_SHAPE,
  type KeyFormValues,
  LIMIT_PATTERN,
  newForm,
  parseKeyForm,
} from "./key_form.ts";
import {
  answerCreated,
  findKey,
  limitCreation,
  nonceDigest,
  refusal,
  targetOf,
} from "./key_requests.tsx";
import { showPage } from "./layout.tsx";
import { confirmFirst } from "./session.ts";

/** Creating and editing a key. */

interface KeyFormProps {
  values: KeyFormValues;
  /** Mistakes by field. */
  errors: ReadonlyMap<string, string>;
  /** A nonce prevents creating a key twice; a version prevents overwriting another change. */
  purpose:
    | { kind: "create"; nonce: string }
    | { kind: "edit"; keyId: string; version: number; isKeepable: boolean };
}

const newKey: Handler = (c, deps) =>
  confirmFirst(c, deps, "/keys/new") ?? showForm(c, deps, {
    values: newForm(deps.defaultLimits.key),
    errors: new Map(),
    purpose: { kind: "create", nonce: mintSecret(deps.randomBytes) },
  });

export const createKey: Handler = async (c, deps) => {
  const confirm = confirmFirst(c, deps, "/keys/new");
  if (confirm !== null) return confirm;
  const shape = { ...KEY_FORM_SHAPE, nonce: secretText };
  const { nonce, ...values } = readForm(c, shape);
  const once = nonceDigest(nonce);
  const parsed = parseKeyForm(values, deps.now(), null);
  if (!parsed.ok) {
    const purpose = { kind: "create", nonce } as const;
    return showForm(c, deps, { values, errors: parsed.errors, purpose });
  }
  const { ownerId } = c.get("signedIn").session;
  await limitCreation(deps, ownerId);
  const { settings } = parsed;
  const input = { ownerId, settings, actor: actorOf(c), once };
  return answerCreated(c, deps, await deps.keys.create(input));
};

const editing = ({ id, expiresAtMs }: KeyRecord, version: number) => ({
  kind: "edit",
  keyId: id,
  version,
  isKeepable: expiresAtMs !== null,
} as const);

const editForm: Handler = async (c, deps) => {
  const key = await findKey(c, deps);
  return showForm(c, deps, {
    values: formOf(key),
    errors: new Map(),
    purpose: editing(key, key.version),
  });
};

const editKey: Handler = async (c, deps) => {
  const key = await findKey(c, deps);
  const { version: seen, ...values } = readForm(c, {
    ...KEY_FORM_SHAPE,
    version,
  });
  const parsed = parseKeyForm(values, deps.now(), key.expiresAtMs);
  if (!parsed.ok) {
    const purpose = editing(key, seen);
    return showForm(c, deps, { values, errors: parsed.errors, purpose });
  }
  const result = await deps.keys.edit(targetOf(c, key, seen), parsed.settings);
  if (!result.ok) throw refusal(result.reason, key);
  return c.redirect(`/keys/${key.id}?done=edited`, 303);
};

export const keyFormRoutes: Routes = {
  "/keys/new": { GET: newKey },
  "/keys/:id/edit": { GET: editForm, POST: editKey },
};

function showForm(
  c: ConsoleContext,
  deps: ConsoleDeps,
  props: KeyFormProps,
): Promise<Response> {
  const { errors, purpose } = props;
  const isNew = purpose.kind === "create";
  const title = isNew ? "Create key" : "Edit key";
  const back = isNew ? "/keys" : `/keys/${purpose.keyId}`;
  return showPage(
    c,
    deps,
    { title, section: "keys", status: errors.size === 0 ? 200 : 400 },
    <section class="card form-card" data-dialog-body="">
      <h1>{title}</h1>
      <PostForm
        action={isNew ? "/keys" : `${back}/edit`}
        hidden={isNew ? { nonce: purpose.nonce } : { version: purpose.version }}
      >
        <KeyFields {...props} />
        <div class="row end">
          <a class="button" href={back} data-close="">Cancel</a>
          <button class="primary" type="submit">
            {isNew ? "Create key" : "Save changes"}
          </button>
        </div>
      </PostForm>
    </section>,
  );
}

const EXPIRIES = [
  ["never", "Never"],
  ["7d", "In 7 days"],
  ["30d", "In 30 days"],
  ["90d", "In 90 days"],
  ["365d", "In one year"],
  ["date", "At the end of a day (UTC)"],
] as const;

const LIMITS = [
  ["rpm", "Requests per minute"],
  ["tpm", "Tokens per minute"],
  ["tpd", "Tokens per day"],
  ["concurrency", "Concurrent requests"],
] as const;

/** From top to bottom. */
const FIELDS = [
  ...["description", "expiry", "scopes"],
  ...["rpm", "tpm", "tpd", "concurrency", "models"],
];

function KeyFields({ values, errors, purpose }: KeyFormProps) {
  /** The first field with a mistake has the focus. */
  const focus = FIELDS.find((name) => errors.has(name)) ?? "description";
  const common = (id: "description" | "models" | typeof LIMITS[number][0]) => ({
    id,
    value: values[id],
    error: errors.get(id),
    autofocus: focus === id,
    autocomplete: "off",
  });
  const isKeepable = purpose.kind === "edit" && purpose.isKeepable;
  return (
    <>
      <Field
        {...common("description")}
        label="Description"
        dir="auto"
        maxlength={KEY_LIMITS.descriptionCharsMax * 2}
        placeholder="Billing service, production"
        required
      />
      <div class="pair">
        <div class="field">
          <label for="expiry">Expires</label>
          <select id="expiry" name="expiry" data-shows="expiry-date">
            {[...isKeepable ? [["keep", "No change"]] : [], ...EXPIRIES].map((
              [value, label],
            ) => (
              <option value={value} selected={value === values.expiry}>
                {label}
              </option>
            ))}
          </select>
        </div>
        <div id="expiry-date" data-shown-for="date">
          <Field
            id="expiry_date"
            label="Day"
            type="date"
            value={values.expiry_date}
            error={errors.get("expiry")}
            autofocus={focus === "expiry"}
          />
        </div>
      </div>
      <fieldset
        class="field"
        aria-describedby={errors.has("scopes") ? "scopes-error" : undefined}
      >
        <legend>Permissions</legend>
        <div class="row">
          {KEY_SCOPES.map((scope, at) => (
            <Box
              name="scopes"
              value={scope}
              checked={values.scopes.includes(scope)}
              autofocus={at === 0 && focus === "scopes"}
            >
              {SCOPE_LABELS[scope]}
            </Box>
          ))}
        </div>
        <FieldError id="scopes" error={errors.get("scopes")} />
      </fieldset>
      <fieldset class="field">
        <legend>
          Limits <span class="faint">– leave empty for no limit</span>
        </legend>
        <div class="pair">
          {LIMITS.map(([name, label]) => (
            <Field
              {...common(name)}
              label={label}
              inputmode="numeric"
              pattern={LIMIT_PATTERN}
              title="A whole number, such as 10,000"
              maxlength={FIELD_CHARS_MAX.limit}
              placeholder="No limit"
            />
          ))}
        </div>
      </fieldset>
      <Field
        {...common("models")}
        label="Models"
        note="– leave empty for all"
        maxlength={FIELD_CHARS_MAX.models}
        placeholder="neutral-3.7-plus, small-1"
      />
    </>
  );
}

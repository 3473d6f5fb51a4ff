import { KEY_SCOPES, type KeyRecord } from "@gateway/shared/keys/record";
import { KEY_LIMITS } from "@gateway/shared/limits";
import type { Catalog } from "@gateway/shared/models/catalog";
import { z } from "zod";
import type { CreatedKey } from "../../domain/keys/key_store.ts";
import {
  type KeySettings,
  limitsOf,
  newSettings,
  SETTING_TEXTS,
  unknownModel,
} from "../../domain/keys/settings.ts";
import { type Rate, takeRate } from "../../domain/sign_in/attempts.ts";
import { digest, isSecret, mintSecret } from "../../domain/store/secret.ts";
import {
  actorOf,
  type ConsoleContext,
  type ConsoleDeps,
  findKey,
  type Handler,
  Refused,
  targetOf,
} from "../context.ts";
import { choice, FORM, list, readForm, text } from "../forms.ts";
import { showPage } from "../layout.tsx";
import { Curl, TryLink } from "../key_parts.tsx";
import { Box, Field, PostForm, ShownOnce } from "../parts.tsx";
import { LimitFields } from "./limits_view.tsx";
import { labelOf, number, permissionOf } from "../texts.tsx";
import { behindPassword } from "../session.ts";

/** Creating and editing a key. */

/** A person creates a few keys in a row; a script uses the command line (API6). */
export const CREATION_RATE: Rate = { count: 10, perMs: 60_000 };

/** Upper bounds for the raw text; `SETTING_TEXTS` validates it. */
const CHARS_MAX = { limit: 20, model: 200 } as const;
const MODELS_MAX = 1_000;
/** More models than this can be searched. */
const MODELS_AT_A_GLANCE = 12;

/** The fields of the form. Limits are named as in the settings. */
const KEY_FORM = z.strictObject({
  description: text(1_000),
  expires: text(20),
  scopes: list(20, KEY_SCOPES.length),
  ...limitsOf(() => text(CHARS_MAX.limit)),
  which_models: choice(["all", "these"]),
  models: list(CHARS_MAX.model, MODELS_MAX),
  /** Of a new key: prevents creating it twice. */
  nonce: FORM.shape.nonce.default(""),
  /** Of an edited key: prevents overwriting another change. */
  version: FORM.shape.version.default(0),
});
type Values = z.infer<typeof KEY_FORM>;

const newKey: Handler = (c) => {
  const { defaultLimits, randomBytes } = c.var.deps;
  const values = valuesOf({ ...newSettings(defaultLimits), version: 0 });
  return showForm(c, null, { ...values, nonce: mintSecret(randomBytes) });
};

const createKey: Handler = async (c) => {
  const { deps: { keys }, signedIn: { session: { ownerId } } } = c.var;
  const values = readForm(c, KEY_FORM);
  const { settings, errors } = parse(values, c.var.deps, null);
  if (settings === undefined) return showForm(c, null, values, errors);
  const input = { ownerId, settings, actor: actorOf(c) };
  const create = (once: string) => keys.create({ ...input, once });
  return await answerCreated(c, values.nonce, create);
};

export const postKey: Handler = behindPassword(createKey);

/**
 * Creates a key once for each nonce and answers with the only page that shows its
 * full value. The page is not cached and cannot be loaded again. `replaced` says
 * what happens to the old key of a rotation.
 */
export async function answerCreated(
  c: ConsoleContext,
  nonce: string,
  create: (once: string) => Promise<CreatedKey>,
  replaced?: string,
): Promise<Response> {
  const { deps, signedIn: { session: { ownerId } } } = c.var;
  if (!isSecret(nonce)) {
    throw new Refused(
      400,
      "This form did not come from the console. Open it again and send it from there",
    );
  }
  const waitMs = await takeRate(deps.redis, `create ${ownerId}`, CREATION_RATE);
  if (waitMs > 0) {
    const seconds = String(Math.ceil(waitMs / 1_000));
    throw new Refused(
      429,
      `You created too many keys in the last minute. Try again in ${seconds} seconds`,
      { headers: { "retry-after": seconds } },
    );
  }
  const { key, value } = await create(digest(nonce));
  return showPage(
    c,
    {
      title: "Store your key now",
      lead: (
        <>
          This is the only time the full value of{" "}
          <strong>
            <bdi>{key.description}</bdi>
          </strong>{" "}
          is shown. If you lose it, you need a new key.
        </>
      ),
      status: 201,
      isCard: true,
    },
    <ShownOnce label="API key" value={value} next="/keys">
      {replaced && <p>{replaced}</p>}
      <h2>Example request</h2>
      <p>
        Set the environment variable <code>OPENAI_API_KEY</code>{" "}
        of your server to the key. Keep the key out of code and browsers.
      </p>
      <Curl {...deps} keyRecord={key} />
      <p class="row">
        <TryLink {...deps} keyRecord={key} />
      </p>
    </ShownOnce>,
  );
}

const editForm: Handler = async (c) => {
  const key = await findKey(c);
  return showForm(c, key, valuesOf(key));
};

const editKey: Handler = async (c) => {
  const { keys } = c.var.deps;
  const key = await findKey(c);
  const values = readForm(c, KEY_FORM);
  const { settings, errors } = parse(values, c.var.deps, key);
  if (settings === undefined) return showForm(c, key, values, errors);
  await keys.edit(targetOf(c, values.version), settings);
  return c.redirect(`/keys/${key.id}?done=edited`, 303);
};

export const keyFormRoutes = {
  "/keys/new": { GET: behindPassword(newKey) },
  "/keys/:id/edit": { GET: editForm, POST: editKey },
};

/** `2026-11-22`, the day in UTC; empty for never. */
const dayOf = (ms: number | null): string =>
  ms === null ? "" : new Date(ms).toISOString().slice(0, 10);

function valuesOf(
  { description, scopes, models, limits, expiresAtMs, version }:
    & KeySettings
    & Pick<KeyRecord, "version">,
): Values {
  return {
    description,
    scopes: [...scopes],
    which_models: models.length === 0 ? "all" : "these",
    models: [...models],
    expires: dayOf(expiresAtMs),
    version,
    nonce: "",
    ...limitsOf((name) => limits[name] === 0 ? "" : String(limits[name])),
  };
}

/** Settings, or errors by field. An edited key may keep its expiry and its models. */
export function parse(
  values: Omit<Values, "nonce" | "version">,
  { now, catalog }: Pick<ConsoleDeps, "now" | "catalog">,
  kept: Pick<KeyRecord, "expiresAtMs" | "models"> | null,
): { settings?: KeySettings; errors: ReadonlyMap<string, string> } {
  const isLimited = values.which_models === "these";
  const named = isLimited ? values.models : [];
  const texts = { ...values, models: named.join(",") };
  const { data, error } = SETTING_TEXTS.safeParse(texts);
  // The first mistake of a field is the one that is shown.
  const errors = new Map(
    error?.issues.toReversed()
      .map(({ path: [name], message }) => [String(name), message]),
  );
  const keptMs = kept?.expiresAtMs ?? null;
  const isKept = values.expires === dayOf(keptMs);
  const expiresAtMs = isKept ? keptMs : data?.expires ?? null;
  const isOver = !isKept && expiresAtMs !== null && expiresAtMs <= now();
  if (isOver || errors.has("expires")) {
    errors.set("expires", "Choose today or a later day");
  }
  if (isLimited && named.length === 0) {
    errors.set("models", "Choose at least one model, or all models");
  }
  const known = [...catalog.keys(), ...kept?.models ?? []];
  const unknown = data && unknownModel(data.models, known);
  if (unknown !== undefined) errors.set("models", unknown);
  if (data === undefined || errors.size > 0) return { errors };
  const { description, scopes, models, expires: _, ...limits } = data;
  return {
    settings: { description, scopes, models, limits, expiresAtMs },
    errors,
  };
}

async function showForm(
  c: ConsoleContext,
  key: KeyRecord | null,
  values: Values,
  errors: ReadonlyMap<string, string> = new Map(),
): Promise<Response> {
  const { deps: { owners }, signedIn: { session: { ownerId } } } = c.var;
  const ownerLimits = await owners.limits(ownerId);
  /** A limit above that of the owner has no effect. */
  const helpOf = (limit: number) =>
    limit > 0 && { help: `All your keys together: ${number(limit)}` };
  const title = key === null ? "Create key" : "Edit key";
  const back = key === null ? "/keys" : `/keys/${key.id}`;
  const { nonce, version } = values;
  /** The first field with a mistake has the focus. */
  const focus = KEY_FORM.keyof().options.find((name) => errors.has(name)) ??
    "description";
  const { catalog } = c.var.deps;
  const served = new Set(["models", ...kindsOf(catalog)]);
  const common = (
    id: Exclude<
      keyof Values,
      "scopes" | "version" | "models" | "which_models"
    >,
  ) => ({
    id,
    value: values[id],
    error: errors.get(id),
    autofocus: focus === id,
    autocomplete: "off",
  });
  return showPage(
    c,
    {
      title,
      isCard: true,
      error: errors.size === 0 ? null : "Correct the marked fields.",
    },
    <PostForm
      action={key === null ? "/keys" : `${back}/edit`}
      hidden={key === null ? { nonce } : { version }}
      submit={key === null ? "Create key" : "Save changes"}
      cancel={back}
    >
      <Field
        {...common("description")}
        label="Description"
        dir="auto"
        maxlength={KEY_LIMITS.descriptionCharsMax * 2}
        placeholder="Billing service, production"
        required
      />
      <Field
        {...common("expires")}
        label="Expires"
        help="At the end of the day in UTC. Leave empty for never."
        type="date"
      />
      <fieldset class="field" aria-describedby="scopes-error">
        <legend>Permissions</legend>
        <div class="row">
          {KEY_SCOPES.map((scope, at) => (
            <Box
              name="scopes"
              value={scope}
              checked={values.scopes.includes(scope)}
              autofocus={at === 0 && focus === "scopes"}
            >
              {permissionOf(scope)}
              {!served.has(scope) && <span class="faint">(no model yet)</span>}
            </Box>
          ))}
        </div>
        <p class="help error" id="scopes-error">{errors.get("scopes")}</p>
      </fieldset>
      <LimitFields
        inputOf={(name) => ({ ...common(name), ...helpOf(ownerLimits[name]) })}
      />
      <ModelFields
        catalog={catalog}
        kept={key?.models ?? []}
        values={values}
        error={errors.get("models")}
        autofocus={focus === "models"}
      />
    </PostForm>,
  );
}

const kindsOf = (catalog: Catalog) =>
  new Set([...catalog.values()].map(({ kind }) => kind));

/** What a model is called that a key names but the list of models no longer has. */
export const NOT_CONFIGURED = "no longer configured";

/** All models, or those that are ticked. The style sheet shows the boxes when they count. */
function ModelFields({ catalog, kept, values, error, autofocus }: {
  catalog: Catalog;
  kept: readonly string[];
  values: Pick<Values, "which_models" | "models">;
  error: string | undefined;
  autofocus: boolean;
}) {
  const { which_models: which, models: chosen } = values;
  const gone = kept.filter((id) => !catalog.has(id));
  const way = (value: typeof which, label: string) => (
    <Box
      type="radio"
      name="which_models"
      value={value}
      checked={which === value}
      autofocus={autofocus && which === value}
    >
      {label}
    </Box>
  );
  const box = (id: string) => (
    <Box name="models" value={id} checked={chosen.includes(id)}>
      <span>{id}</span>
      {gone.includes(id) && <span class="badge">{labelOf(NOT_CONFIGURED)}
      </span>}
    </Box>
  );
  return (
    <fieldset class="field" aria-describedby="models-error">
      <legend>Models</legend>
      {way("all", "All models, including future ones")}
      {way("these", "Only these models")}
      <div class="models">
        {catalog.size > MODELS_AT_A_GLANCE && (
          <input
            type="search"
            data-find="model-list"
            aria-label={`Find one of ${number(catalog.size)} models`}
            placeholder="Find models"
            hidden
          />
        )}
        <div
          id="model-list"
          class="card"
          role="group"
          aria-label="Models that the key may use"
          tabindex={0}
        >
          {gone.map(box)}
          {[...kindsOf(catalog)].map((kind) => (
            <div role="group" aria-label={labelOf(kind)}>
              <p class="help" aria-hidden="true">{labelOf(kind)}</p>
              {[...catalog.values()].filter((model) =>
                model.kind === kind
              )
                .map(({ id }) => box(id))}
            </div>
          ))}
        </div>
      </div>
      <p class="help error" id="models-error">{error}</p>
    </fieldset>
  );
}

/** The defaults of new keys of an account. */

import { z } from "zod";
import {
  expiryDays,
  type KeyDefaults,
} from "../../../domain/keys/default_store.ts";
import {
  limitsOf,
  limitText,
  newSettings,
  SETTING_TEXTS,
  unknownModel,
} from "../../../domain/keys/settings.ts";
import { ProjectRefused } from "../../../domain/projects/project_refused.ts";
import {
  actorOf,
  type ConsoleContext,
  type Handler,
  type Routes,
} from "../../context.ts";
import { list, parseForm, text } from "../../request/forms.ts";
import { OWN_KEYS, ownScopeOf } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { Field, PostForm } from "../../view/parts.tsx";
import { limitFields } from "../usage/limits_view.tsx";
import { ModelChoices } from "./model_choices.tsx";

/** The form, with bounds of the raw text. */
const FORM = z.strictObject({
  ...limitsOf(() => text(20)),
  which_models: z.enum(["all", "these"]),
  models: list(200, 1_000),
  expiryDays: text(20),
});
type Values = z.infer<typeof FORM>;

const SETTINGS = SETTING_TEXTS
  .pick({ models: true, ...limitsOf(() => true as const) })
  .extend({ expiryDays });

/** The account, for whoever may change its defaults: in a project, its admins. */
function scopeOf(c: ConsoleContext) {
  const scope = ownScopeOf(c);
  if (scope.createdBy !== undefined) throw new ProjectRefused("not_admin");
  return scope;
}

const openForm: Handler = async (c) => {
  const { defaults, defaultLimits } = c.var.deps;
  const { limits } = newSettings(defaultLimits);
  const standard: KeyDefaults = { limits, models: [], expiryDays: 0 };
  const stored = await defaults.read(scopeOf(c).ownerId) ?? standard;
  return show(c, {
    ...limitsOf((name) =>
      stored.limits[name] === 0 ? "" : limitText(name, stored.limits[name])
    ),
    which_models: stored.models.length === 0 ? "all" : "these",
    models: [...stored.models],
    expiryDays: String(stored.expiryDays || ""),
  });
};

const save: Handler = async (c) => {
  const { ownerId, base } = scopeOf(c);
  const { defaults, catalog } = c.var.deps;
  const values = parseForm(c, FORM);
  const named = values.which_models === "these" ? values.models : [];
  const texts = { ...values, models: named.join(",") };
  const { data, error } = SETTINGS.safeParse(texts);
  const errors = new Map(
    error?.issues.toReversed()
      .map(({ path: [name], message }) => [String(name), message]),
  );
  const currentModels = (await defaults.read(ownerId))?.models ?? [];
  const unknown = data && !catalog.isPending &&
    unknownModel(data.models, [...catalog.keys(), ...currentModels]);
  if (unknown) errors.set("models", unknown);
  if (values.which_models === "these" && named.length === 0) {
    errors.set("models", "Choose at least one model, or all models");
  }
  if (data === undefined || errors.size > 0) return show(c, values, errors);
  const { models, expiryDays: days, ...limits } = data;
  const chosen = { limits, models, expiryDays: days };
  await defaults.write(ownerId, chosen, actorOf(c));
  return c.redirect(`${base}?done=defaults`, 303);
};

function show(
  c: ConsoleContext,
  values: Values,
  errors: ReadonlyMap<string, string> = new Map(),
) {
  const { base } = scopeOf(c);
  const { catalog } = c.var.deps;
  return (
    <Page
      c={c}
      title="Defaults of new keys"
      lead="The form of a new key begins with these. Keys that exist stay as they are."
      error={errors.size === 0 ? null : "Correct the marked fields."}
      isCard
    >
      <PostForm action={c.req.path} submit="Save defaults" cancel={base}>
        <Field
          id="expiryDays"
          label="Expires after days"
          help="Leave empty if new keys should never expire."
          type="number"
          min={0}
          value={values.expiryDays}
          error={errors.get("expiryDays")}
          autocomplete="off"
        />
        {limitFields((name) => ({
          value: values[name],
          error: errors.get(name),
          autocomplete: "off",
        }))}
        <ModelChoices
          catalog={catalog}
          currentModels={values.models}
          values={values}
          error={errors.get("models")}
        />
      </PostForm>
    </Page>
  );
}

/** The routes of the defaults of an account. */
export const defaultRoutes = (root: string): Routes => ({
  [`${root + OWN_KEYS}/defaults`]: { GET: openForm, POST: save },
});

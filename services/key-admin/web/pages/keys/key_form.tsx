/** The form of a key: creating and editing one. */

import {
  KEY_PRIORITIES,
  KEY_SCOPES,
  type KeyRecord,
} from "@gateway/shared/keys/record";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import { NETWORKS_MAX, networkText } from "@gateway/shared/keys/networks";
import { z } from "zod";
import { REASON_CHARS_MAX } from "../../../domain/audit/audit_log.ts";
import { withDefaults } from "../../../domain/keys/default_store.ts";
import {
  addsToTotal,
  isBound,
  type KeySettings,
  limitsOf,
  limitText,
  newSettings,
  SETTING_TEXTS,
  unknownModel,
} from "../../../domain/keys/settings.ts";
import {
  END_USERS_EXAMPLE,
  endUsersWords,
} from "../../../domain/keys/end_users.ts";
import { mintSecret } from "../../../domain/store/secret.ts";
import {
  actorOf,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  type Routes,
} from "../../context.ts";
import { FORM, list, parseForm, text } from "../../request/forms.ts";
import {
  findKey,
  KEYS_OF_OWNER,
  type KeyScope,
  keyScopeOf,
  noteForOperator,
  OWN_KEYS,
  ownScopeOf,
  reasonIn,
  targetOf,
  whoseOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { Box, Choices, Field, PostForm } from "../../view/parts.tsx";
import { permissionOf } from "../../view/texts.tsx";
import { answerCreated } from "./key_created.tsx";
import { ModelChoices } from "./model_choices.tsx";
import { limitFields, shownLimit } from "../usage/limits_view.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";

/** Room for as many networks as a key may have, in their longest form. */
const CIDRS_CHARS_MAX = NETWORKS_MAX * 50;

/**
 * The fields of the form with bounds of the raw text, which `SETTING_TEXTS` validates.
 * Limits are named as in the settings.
 */
const KEY_FORM = z.strictObject({
  description: text(1_000),
  expires: text(20),
  scopes: list(20, KEY_SCOPES.length),
  ...limitsOf(() => text(20)),
  which_models: z.enum(["all", "these"]),
  models: list(200, 1_000),
  allowedCidrs: text(CIDRS_CHARS_MAX),
  endUsers: text(300),
  priority: z.enum(KEY_PRIORITIES).default("normal"),
  keepSeconds: text(20).default(""),
});
/**
 * The nonce keeps a form from creating two keys; the version, from overwriting another
 * change.
 */
const NEW_KEY = KEY_FORM.extend(FORM.pick({ nonce: true }).shape);
const EDITED_KEY = KEY_FORM.extend(FORM.pick({ version: true }).shape);
type Values = z.infer<typeof KEY_FORM>;

const newKey: Handler = async (c) => {
  const { defaultLimits, defaults, now, randomBytes } = c.var.deps;
  const scope = ownScopeOf(c);
  const own = await defaults.read(scope.ownerId);
  const settings = withDefaults(newSettings(defaultLimits), own, now());
  const hidden = { nonce: mintSecret(randomBytes) };
  return showForm(c, { scope, key: null, values: valuesOf(settings), hidden });
};

const createKey: Handler = async (c) => {
  const { deps: { keys }, signedIn: { session } } = c.var;
  const scope = ownScopeOf(c);
  const { ownerId } = scope;
  const { nonce, ...values } = parseForm(c, NEW_KEY);
  const { settings, errors } = parse(values, c.var.deps, null);
  if (settings === undefined) {
    const hidden = { nonce };
    return showForm(c, { scope, key: null, values, hidden, errors });
  }
  const createdBy = session.ownerId;
  const input = { ownerId, settings, createdBy, actor: actorOf(c) };
  const create = (once: string) => keys.create({ ...input, once });
  return await answerCreated(c, { scope, nonce, create });
};

const editForm: Handler = async (c) => {
  const scope = await keyScopeOf(c);
  const key = await findKey(c, scope);
  const hidden = { version: key.version };
  return showForm(c, { scope, key, values: valuesOf(key), hidden });
};

const editKey: Handler = async (c) => {
  const scope = await keyScopeOf(c);
  const key = await findKey(c, scope);
  const { version, reason, ...values } = parseForm(
    c,
    EDITED_KEY.extend({
      reason: reasonIn(scope),
    }),
  );
  const { settings, errors } = parse(values, c.var.deps, key);
  const isMember = scope.createdBy !== undefined;
  const isBeyond = settings !== undefined && isMember &&
    addsToTotal(key.limits, settings.limits);
  const isOld = version !== key.version;
  if (isOld || isBeyond || settings === undefined) {
    const hidden = { version: key.version };
    const problems = isOld
      ? new Map([["key", CHANGED]])
      : isBeyond
      ? new Map([["budgetTotal", NOT_BY_MEMBERS]])
      : errors;
    return showForm(c, { scope, key, values, hidden, errors: problems });
  }
  const target = targetOf(c, scope, { version, reason });
  await c.var.deps.keys.edit(target, settings);
  await noteForOperator(c, scope, { action: "key.edited", key, reason });
  return c.redirect(`${scope.base}/${key.id}?done=edited`, 303);
};

const NOT_BY_MEMBERS =
  "Only an admin of the project or an operator adds to this budget. You may lower it";
const MARKED = "Correct the marked fields.";
const CHANGED =
  "This key was changed after you had opened the form. Look at its page, then save again to replace its settings with these.";

/** The routes of the form for a new key and an existing one. */
export const keyFormRoutes = (root: string): Routes => ({
  [`${root + OWN_KEYS}/new`]: { GET: newKey, POST: behindPassword(createKey) },
  [`${root + OWN_KEYS}/:id/edit`]: { GET: editForm, POST: editKey },
});

/** The same form for operators and any key that exists. */
export const operatorKeyFormRoutes: Routes = {
  [`${KEYS_OF_OWNER}/:id/edit`]: { GET: editForm, POST: editKey },
};

/** `2026-11-22`, the day in UTC; empty for never. */
const dayOf = (ms: number | null): string =>
  ms === null ? "" : new Date(ms).toISOString().slice(0, 10);

function valuesOf(
  { description, scopes, models, networks, limits, expiresAtMs, ...more }:
    KeySettings,
): Values {
  return {
    description,
    allowedCidrs: networks.map(networkText).join("\n"),
    endUsers: endUsersWords(more.endUsers),
    priority: more.priority,
    keepSeconds: more.keepSeconds === 0 ? "" : String(more.keepSeconds),
    scopes: [...scopes],
    which_models: models.length === 0 ? "all" : "these",
    models: [...models],
    expires: dayOf(expiresAtMs),
    ...limitsOf((name) =>
      limits[name] === 0 ? "" : limitText(name, limits[name])
    ),
  };
}

/** Settings, or errors by field. An edited key may keep its expiry and its models. */
export function parse(
  values: Values,
  { now, catalog }: Pick<ConsoleDeps, "now" | "catalog">,
  current: Pick<KeyRecord, "expiresAtMs" | "models"> | null,
): { settings?: KeySettings; errors: ReadonlyMap<string, string> } {
  const isLimited = values.which_models === "these";
  const names = isLimited ? values.models : [];
  const texts = { ...values, models: names.join(",") };
  const { data, error } = SETTING_TEXTS.safeParse(texts);
  // The first mistake of a field is the one that is shown.
  const errors = new Map(
    error?.issues.toReversed()
      .map(({ path: [name], message }) => [String(name), message]),
  );
  const keptMs = current?.expiresAtMs ?? null;
  const isKept = values.expires === dayOf(keptMs);
  const expiresAtMs = isKept ? keptMs : data?.expires ?? null;
  const isOver = !isKept && expiresAtMs !== null && expiresAtMs <= now();
  if (isOver || errors.has("expires")) {
    errors.set("expires", "Choose today or a later day");
  }
  if (isLimited && names.length === 0) {
    errors.set("models", "Choose at least one model, or all models");
  }
  const allowed = [...catalog.keys(), ...current?.models ?? []];
  // The form may be older than this process, which does not know the lists yet.
  const unknown = catalog.isPending
    ? undefined
    : data && unknownModel(data.models, allowed);
  if (unknown !== undefined) errors.set("models", unknown);
  if (data === undefined || errors.size > 0) return { errors };
  const { description, scopes, models, allowedCidrs, ...rest } = data;
  const { expires: _, endUsers, priority, keepSeconds, ...limits } = rest;
  const networks = allowedCidrs;
  const chosen = { description, scopes, models, networks, endUsers };
  const more = { priority, keepSeconds, limits, expiresAtMs };
  return { settings: { ...chosen, ...more }, errors };
}

/** The reason for changing somebody else's key. */
export const ReasonField = ({ name }: { name: string }) => (
  <Field
    id="reason"
    label="Reason"
    help={`${name} sees it on the key's page and in the audit log.`}
    dir="auto"
    maxlength={REASON_CHARS_MAX}
    required
    autocomplete="off"
  />
);

const ALL_KEYS = {
  own: "All your keys",
  project: "All keys of the project",
  other: "All keys of this account",
} as const;

/** A form of a key that is shown. */
interface ShownForm {
  /** The account of the key. */
  scope: KeyScope;
  /** The key that is edited; null for a new one. */
  key: KeyRecord | null;
  values: Values;
  hidden: { nonce: string } | { version: number };
  /** Mistakes by field; `key`: one of the whole form. */
  errors?: ReadonlyMap<string, string>;
}

async function showForm(
  c: ConsoleContext,
  { scope, key, values, hidden, errors = new Map() }: ShownForm,
) {
  const { owners, catalog } = c.var.deps;
  const { base, other } = scope;
  const ownerLimits = await owners.limits(scope.ownerId);
  const isNew = key === null;
  const whose = ALL_KEYS[whoseOf(scope)];
  const common = (id: Exclude<keyof Values, "scopes" | "models">) => ({
    id,
    value: values[id],
    error: errors.get(id),
    autocomplete: "off",
  });
  return (
    <Page
      c={c}
      title={isNew ? "Create key" : "Edit key"}
      isCard
      error={errors.size === 0 ? null : errors.get("key") ?? MARKED}
    >
      <PostForm
        action={c.req.path}
        hidden={hidden}
        submit={isNew ? "Create key" : "Save changes"}
        cancel={isNew ? base : `${base}/${key.id}`}
      >
        <Field
          {...common("description")}
          label="Description"
          dir="auto"
          maxlength={KEY_LIMITS.descriptionCharsMax * 2}
          placeholder="Billing service, production"
          required
          autofocus={errors.size === 0 || errors.has("description")}
        />
        <Field
          {...common("expires")}
          label="Expires"
          help="At the end of this day in UTC. Leave empty if it should never expire."
          type="date"
        />
        <Choices id="scopes" legend="Permissions" error={errors.get("scopes")}>
          <div class="row">
            {KEY_SCOPES.map((scope) => (
              <Box
                name="scopes"
                value={scope}
                checked={values.scopes.includes(scope)}
                autofocus={errors.has("scopes")}
              >
                {permissionOf(scope)}
              </Box>
            ))}
          </div>
        </Choices>
        {limitFields((name) => ({
          ...common(name),
          // A limit above that of the owner has no effect.
          ...isBound(name) && ownerLimits[name] > 0 &&
            {
              help: `${whose} together: ${
                shownLimit(name, ownerLimits[name], catalog.prices.currency)
              }`,
            },
        }))}
        <ModelChoices
          catalog={catalog}
          currentModels={key?.models ?? []}
          values={values}
          error={errors.get("models")}
        />
        <Field
          {...common("allowedCidrs")}
          label="Allowed addresses"
          help="Networks such as 10.0.0.0/8 or 2001:db8::/32, one a line. Requests from elsewhere get 403. Leave empty to allow all."
          rows={2}
          spellcheck={false}
        />
        <Field
          {...common("endUsers")}
          label="End users"
          help={END_USERS_HELP}
          placeholder={END_USERS_EXAMPLE}
          spellcheck={false}
        />
        <PriorityChoice
          value={values.priority}
          error={errors.get("priority")}
        />
        <Field {...common("keepSeconds")} {...KEEP_FIELD} />
        {other !== null && <ReasonField name={other.name} />}
      </PostForm>
    </Page>
  );
}

const PRIORITIES = {
  normal: "Normal",
  batch: "Batch: behind all other requests of the account",
} as const;

/** How the requests of the key wait for a free slot. */
const PriorityChoice = (
  { value, error }: { value: Values["priority"]; error: string | undefined },
) => (
  <Choices id="priority" legend="While requests wait" error={error}>
    <div class="row">
      {KEY_PRIORITIES.map((priority) => (
        <Box
          type="radio"
          name="priority"
          value={priority}
          checked={value === priority}
        >
          {PRIORITIES[priority]}
        </Box>
      ))}
    </div>
  </Choices>
);

/** The field of the seconds for which answers are kept, without its value. */
const KEEP_FIELD = {
  label: "Keep answers, in seconds",
  help:
    `For how long after its end an answer can still be read by its id, up to ${KEPT_LIMITS.secondsMax}. Its request then goes on when its client leaves. Leave empty to keep only what a request asks for.`,
  type: "number",
  min: 0,
  placeholder: "0",
};

const END_USERS_HELP =
  "Limits for each of those that an application serves with this key: rpm (requests), tpm (tokens) per minute, budget-day. They are told apart by header:<name>, user (of the body) or session (of Claude Code and Codex). Leave empty for none.";

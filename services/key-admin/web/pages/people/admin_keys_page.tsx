/** The keys of programs that use the admin API, for operators. */

import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import { z } from "zod";
import {
  ADMIN_SCOPES,
  type AdminKey,
  AdminKeyRefused,
  type AdminScope,
} from "../../../domain/admin_keys/admin_key_store.ts";
import { SETTING_TEXTS } from "../../../domain/keys/settings.ts";
import { digest, mintSecret } from "../../../domain/store/secret.ts";
import {
  type ConsoleContext,
  type Handler,
  operatorOf,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, list, parseForm, text } from "../../request/forms.ts";
import { Page } from "../../view/layout.tsx";
import {
  Box,
  Choices,
  Field,
  Noted,
  PostForm,
  ShownOnce,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import type { Column } from "../../view/sorting.tsx";
import { Time } from "../../view/texts.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";
import { takeCreation } from "../keys/key_created.tsx";
import { ADMIN_KEYS, PEOPLE_VIEWS } from "../usage/addresses.ts";

/** What each scope lets a program do, in the form and in the list. */
const SCOPES: Readonly<Record<AdminScope, string>> = {
  keys: "Keys of all accounts, and running requests",
  accounts: "Owners, projects, defaults, audit logs and admin keys",
  usage: "Usage, what was spent, and the request log",
  models: "Models and their servers",
};

const SCOPE_CHARS_MAX = 20;
const NEW_KEY = z.strictObject({
  description: text(1_000),
  scopes: list(SCOPE_CHARS_MAX, ADMIN_SCOPES.length),
  expires: text(20),
  nonce: FORM.shape.nonce,
});
const SETTINGS = z.object({
  description: SETTING_TEXTS.shape.description,
  scopes: z.array(z.enum(ADMIN_SCOPES)).min(1, "Choose at least one"),
  expires: SETTING_TEXTS.shape.expires,
});
type Values = z.infer<typeof NEW_KEY>;

const columnsAt = (nowMs: number): Column<AdminKey>[] => [
  ["Key", ({ description, hint, id }) => (
    <Noted note={`${hint}, ${id}`}>
      <span dir="auto">{description}</span>
    </Noted>
  )],
  ["May use", ({ scopes }) => scopes.join(", ")],
  ["Created", ({ createdAtMs, createdBy }) => (
    <Noted note={`by ${createdBy}`}>
      <Time ms={createdAtMs} as="day" />
    </Noted>
  )],
  ["Expires", ({ expiresAtMs }) => {
    if (expiresAtMs === null) return "Never";
    if (expiresAtMs > nowMs) return <Time ms={expiresAtMs} as="day" />;
    return <span class="badge bad">Expired</span>;
  }],
  [
    "Change",
    ({ id, description }) => (
      <a class="button small bad" href={`${ADMIN_KEYS}/${id}/delete`}>
        Delete <span class="hidden">{description}</span>
      </a>
    ),
  ],
];

const showKeys: Handler = async (c) => {
  const { adminKeys, now } = c.var.deps;
  const create = (
    <a class="button primary" href={`${ADMIN_KEYS}/new`}>Create admin key</a>
  );
  return (
    <Page
      c={c}
      title="Admin keys"
      lead="Keys of programs that do what operators do, through the admin API. Give each program its own, with no more than it needs."
      actions={create}
    >
      <Tabs
        label="View"
        tabs={PEOPLE_VIEWS}
        current={ADMIN_KEYS}
        to={(view) => view}
      />
      <Table
        caption="Admin keys, newest first"
        rows={await adminKeys.list()}
        columns={columnsAt(now())}
        empty={{
          title: "No admin keys yet",
          lead:
            "A CI job that makes API keys needs one, a script that takes people off board, or the command line on another machine.",
        }}
      />
    </Page>
  );
};

const newKey: Handler = (c) =>
  showForm(c, {
    description: "",
    scopes: [],
    expires: "",
    nonce: mintSecret(c.var.deps.randomBytes),
  });

function showForm(
  c: ConsoleContext,
  values: Values,
  errors: ReadonlyMap<string, string> = new Map(),
) {
  return (
    <Page
      c={c}
      title="Create admin key"
      error={errors.size === 0 ? null : "Correct the marked fields."}
      isCard
    >
      <PostForm
        action={ADMIN_KEYS}
        hidden={{ nonce: values.nonce }}
        submit="Create admin key"
        cancel={ADMIN_KEYS}
      >
        <Field
          id="description"
          label="Description"
          value={values.description}
          error={errors.get("description")}
          dir="auto"
          maxlength={KEY_LIMITS.descriptionCharsMax * 2}
          placeholder="Nightly build"
          required
          autofocus={errors.size === 0}
          autocomplete="off"
        />
        <Field
          id="expires"
          label="Expires"
          help="At the end of this day in UTC. Leave empty if it should never expire."
          type="date"
          value={values.expires}
          error={errors.get("expires")}
          autocomplete="off"
        />
        <Choices id="scopes" legend="May use" error={errors.get("scopes")}>
          {ADMIN_SCOPES.map((scope) => (
            <Box
              key={scope}
              name="scopes"
              value={scope}
              checked={values.scopes.includes(scope)}
            >
              <span>
                <code>{scope}</code>: {SCOPES[scope]}
              </span>
            </Box>
          ))}
        </Choices>
        <p class="help">
          With <code>keys</code>{" "}
          a program can make itself a key of any account, and with{" "}
          <code>accounts</code>{" "}
          an operator: give these only to what you trust like an operator.
        </p>
      </PostForm>
    </Page>
  );
}

const create: Handler = async (c) => {
  const values = parseForm(c, NEW_KEY);
  const { adminKeys, now } = c.var.deps;
  const { data, error } = SETTINGS.safeParse(values);
  const errors = new Map(
    error?.issues.toReversed()
      .map(({ path: [name], message }) => [String(name), message]),
  );
  const expiresAtMs = data?.expires ?? null;
  const isOver = expiresAtMs !== null && expiresAtMs <= now();
  if (isOver || errors.has("expires")) {
    errors.set("expires", "Choose today or a later day");
  }
  if (data === undefined || errors.size > 0) return showForm(c, values, errors);
  await takeCreation(c);
  const { description, scopes } = data;
  const by = { ...operatorOf(c), once: digest(values.nonce) };
  const wanted = { description, scopes, expiresAtMs };
  const { value } = await adminKeys.create(wanted, by).catch(refused);
  return (
    <Page
      c={c}
      title="Store the admin key now"
      lead="This is the only time that it is shown. If you lose it, delete it and create another one."
      status={201}
      isCard
    >
      <ShownOnce label="Admin key" value={value} next={ADMIN_KEYS}>
        <p>
          Send it as a bearer token, or give it to the command line as{" "}
          <code>GATEWAY_ADMIN_KEY</code>. The admin API describes itself at{" "}
          <a href="/admin/openapi.json">/admin/openapi.json</a>.
        </p>
      </ShownOnce>
    </Page>
  );
};

/** Turns a refusal into a page. */
function refused(cause: unknown): never {
  if (!(cause instanceof AdminKeyRefused)) throw cause;
  const status = cause.reason === "not_found" ? 404 : 409;
  throw new Refused(status, cause.message, { cause, back: ADMIN_KEYS });
}

const askDelete: Handler = async (c) => {
  const id = c.req.param("id") ?? "";
  const all = await c.var.deps.adminKeys.list();
  const key = all.find((each) => each.id === id);
  if (key === undefined) return refused(new AdminKeyRefused("not_found"));
  return (
    <Page
      c={c}
      title="Delete this admin key?"
      lead="The program that uses it is refused from its next request on. The key cannot be brought back."
      isCard
    >
      <p>
        <strong dir="auto">{key.description}</strong>{" "}
        ({key.hint}), which may use {key.scopes.join(", ")}
      </p>
      <PostForm
        action={`${ADMIN_KEYS}/${id}/delete`}
        submit="Delete admin key"
        look="primary bad"
        cancel={ADMIN_KEYS}
      />
    </Page>
  );
};

const remove: Handler = async (c) => {
  parseForm(c, z.strictObject({}));
  const id = c.req.param("id") ?? "";
  await c.var.deps.adminKeys.delete(id, operatorOf(c)).catch(refused);
  return c.redirect(`${ADMIN_KEYS}?done=admin_key_deleted`, 303);
};

/** The routes of admin keys, for operators. */
export const adminKeyRoutes: Routes = {
  [ADMIN_KEYS]: { GET: showKeys, POST: behindPassword(create) },
  [`${ADMIN_KEYS}/new`]: { GET: newKey },
  [`${ADMIN_KEYS}/:id/delete`]: {
    GET: askDelete,
    POST: behindPassword(remove),
  },
};

/** What owners and projects have in common: defaults of new keys, and the audit log. */
import { z } from "zod";
import { expiryDays } from "../domain/keys/default_store.ts";
import { namedLimits, newSettings } from "../domain/keys/settings.ts";
import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import { AUDIT, KEY_DEFAULTS } from "./answers.ts";
import { modelNames, NO_BODY, NOTHING, PLACE, someLimits } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  adminRoute,
  versionOf,
} from "./route.ts";
import { checkAccount, modelIds } from "./shared_steps.ts";

type AccountCall = Pick<AdminCall<unknown, unknown>, "deps" | "id">;

/** The defaults of an account; the gateway's own, where it has none. */
async function defaultsOf({ deps, id }: AccountCall) {
  await checkAccount(deps, id);
  const { limits, models } = newSettings(deps.defaultLimits);
  const own = await deps.defaults.read(id);
  return own ?? { limits, models, expiryDays: 0 };
}

async function showDefaults(call: AccountCall): Promise<AdminAnswer> {
  const { limits, models, expiryDays } = await defaultsOf(call);
  const version = await call.deps.defaults.version(call.id);
  return {
    json: {
      limits: namedLimits(limits, "_"),
      models,
      expires_after_days: expiryDays,
      version,
    },
    etag: String(version),
  };
}

async function setDefaults(
  call: AdminCall<unknown, z.output<typeof DEFAULTS>>,
): Promise<AdminAnswer> {
  const { deps, id, actor, body } = call;
  const { models: before } = await defaultsOf(call);
  const limits: Limits = { ...UNLIMITED, ...body.limits };
  const models = modelIds(deps, body.models, { before });
  const wanted = { limits, models, expiryDays: body.expires_after_days };
  const by = { ...actor, version: versionOf(call) };
  await deps.defaults.write(id, wanted, by);
  return await showDefaults(call);
}

const DEFAULTS = z.strictObject({
  limits: someLimits.default({}),
  models: modelNames.default([]),
  expires_after_days: z.int().min(0).transform(String).pipe(expiryDays)
    .default(0).meta({ description: "0: never" }),
});

async function readAudit(
  { deps, id, query }: AdminCall<z.output<typeof AUDIT_QUERY>, unknown>,
): Promise<AdminAnswer> {
  await checkAccount(deps, id);
  const { key: keyId, after: before, ...page } = query;
  const { rows, next } = await deps.audit.read(id, { ...page, keyId, before });
  const entries = rows.map(({ timeMs, ...row }) => ({
    time: new Date(timeMs).toISOString(),
    action: row.action,
    by: row.by,
    ip: row.ip,
    key_id: row.keyId,
    hint: row.hint,
    description: row.description,
    detail: row.detail,
  }));
  return { json: { entries, next } };
}

const action = z.string().regex(/^[a-z_.]{0,50}$/, "Such as key. or key.edited")
  .default("").meta({ description: "Only actions that begin like this" });
const AUDIT_QUERY = z.strictObject({
  action,
  key: z.string().max(200).default("").meta({
    description: "Only what was done to the key of this id",
  }),
  ...PLACE,
});

const ONE = { scope: "accounts" } as const;

/** Routes of what owners and projects have in common. */
export const ACCOUNT_ROUTES = [
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/accounts/:id/key_defaults",
    summary: "Show what new keys of an owner or a project get",
    query: NOTHING,
    body: NO_BODY,
    answers: KEY_DEFAULTS,
    run: showDefaults,
  }),
  adminRoute({
    ...ONE,
    method: "PUT",
    path: "/accounts/:id/key_defaults",
    headers: ["if-match"],
    summary:
      "Set what new keys of an account get: what is not stated is unlimited. Keys that exist stay as they are",
    query: NOTHING,
    body: DEFAULTS,
    answers: KEY_DEFAULTS,
    run: setDefaults,
  }),
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/accounts/:id/audit",
    summary: "List who did what to an account and its keys, newest first",
    query: AUDIT_QUERY,
    body: NO_BODY,
    answers: AUDIT,
    run: readAudit,
  }),
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/accounts/:id/audit.csv",
    summary: "Export the whole audit log of an account as CSV",
    query: z.strictObject({ action }),
    body: NO_BODY,
    answers: "csv",
    run: async ({ deps, id, query }) => {
      await checkAccount(deps, id);
      return { csv: deps.audit.csv(id, query) };
    },
  }),
];

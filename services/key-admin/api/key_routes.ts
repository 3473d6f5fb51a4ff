/** Routes of the admin API for the keys of all accounts. */
import { isDeepStrictEqual } from "node:util";
import { isAccountId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type KeyRecord, UNLIMITED } from "@gateway/shared/keys/record";
import { defined } from "@gateway/shared/process/env";
import { z } from "zod";
import { withDefaults } from "../domain/keys/default_store.ts";
import { isoTime, toJson } from "../domain/keys/key_json.ts";
import type { KeyRow } from "../domain/keys/key_page.ts";
import {
  type CreatedKey,
  GRACES,
  graceSchema,
  type Target,
} from "../domain/keys/key_store.ts";
import {
  type KeySettings,
  newSettings,
  unknownModel,
} from "../domain/keys/settings.ts";
import { digest } from "../domain/store/secret.ts";
import { KEY_MEMBERS, NO_BODY, NOTHING, PAGE, stateFilter } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
} from "./route.ts";

const { description, limits, ...OTHERS } = KEY_MEMBERS;
const optional = z.strictObject({ ...OTHERS, limits }).partial();
const WHOLE = z.strictObject({ description, ...optional.shape });
const CHANGES = z.strictObject({ ...KEY_MEMBERS }).partial();
type Wanted = z.output<typeof CHANGES>;

const answerOf = (key: KeyRecord, { now }: AdminDeps): AdminAnswer => ({
  json: toJson(key, now()),
  etag: String(key.version),
});

const createdAnswer = (
  { key, value }: CreatedKey,
  { now }: AdminDeps,
): AdminAnswer => ({
  status: 201,
  json: { ...toJson(key, now()), key: value },
  etag: String(key.version),
});

/**
 * Returns the settings that a request states, by our names. Limits that it leaves out
 * stay as they were.
 */
function settingsOf(
  wanted: Wanted,
  before: Pick<KeySettings, "limits" | "models">,
  { catalog, now }: AdminDeps,
): Partial<KeySettings> {
  const { expires_at: expiresAtMs, allowed_cidrs: networks } = wanted;
  if (expiresAtMs && expiresAtMs <= now()) {
    const param = "expires_at";
    throw new AdminRefused("invalid_value", "This time has passed", { param });
  }
  const ids = wanted.models?.map((name) => catalog.find(name)?.id ?? name);
  const models = ids && [...new Set(ids)];
  const fault = models &&
    unknownModel(models, [...catalog.keys(), ...before.models]);
  if (fault) {
    throw new AdminRefused("invalid_value", fault, { param: "models" });
  }
  return defined({
    description: wanted.description,
    scopes: wanted.scopes,
    models,
    networks,
    endUsers: wanted.end_users,
    expiresAtMs,
    limits: { ...before.limits, ...wanted.limits },
  });
}

/** Returns the key that the path names. */
async function find(
  { deps: { people, keys }, id }: Pick<
    AdminCall<unknown, unknown>,
    "deps" | "id"
  >,
): Promise<KeyRecord> {
  const ownerId = await people.ownerOf(id);
  const key = ownerId === null ? null : await keys.get(ownerId, id);
  if (key === null) {
    throw new AdminRefused("not_found", "There is no key of this id");
  }
  return key;
}

/** Returns the key that is to be changed, and the version that the change expects. */
async function findTarget(call: AdminCall<unknown, unknown>) {
  const key = await find(call);
  const { ifMatch } = call;
  if (ifMatch !== undefined && ifMatch !== String(key.version)) {
    throw new AdminRefused(
      "precondition_failed",
      `The key has the version ${key.version}, not ${ifMatch}`,
    );
  }
  const version = ifMatch === undefined ? null : key.version;
  const { ownerId } = key;
  const { actor } = call;
  return { key, target: { ownerId, keyId: key.id, version, actor } };
}

/**
 * Gives a key the settings of a request, then the state; changes nothing if it has
 * both.
 */
async function change(
  call: AdminCall<unknown, Wanted>,
  baseOf: (key: KeyRecord) => Partial<KeySettings>,
): Promise<AdminAnswer> {
  const { deps, body } = call;
  const { key, target } = await findTarget(call);
  const base = { ...key, ...baseOf(key) };
  const settings = { ...baseOf(key), ...settingsOf(body, base, deps) };
  let after = key;
  let step: Target = target;
  const next = (changed: KeyRecord) => {
    after = changed;
    if (step.version !== null) step = { ...step, version: changed.version };
  };
  if (!isDeepStrictEqual({ ...key, ...settings }, key)) {
    next(await deps.keys.edit(step, settings));
  }
  const { state = key.state } = body;
  if (state !== after.state) {
    next(
      await (state === "enabled"
        ? deps.keys.enable(step)
        : deps.keys.disable(step)),
    );
  }
  return answerOf(after, deps);
}

async function list(
  { deps, query }: AdminCall<z.output<typeof LIST>, unknown>,
): Promise<AdminAnswer> {
  const { people, keys, now } = deps;
  const { account, state: filter, ...page } = query;
  const day = usageDay(now());
  const isOne = account !== undefined;
  if (isOne && await people.name(account) === null) {
    const message = "There is no account of this id";
    throw new AdminRefused("not_found", message, { param: "account" });
  }
  if (!isOne && filter !== "all") {
    const message = "A state can be asked for with an account only";
    throw new AdminRefused("invalid_value", message, { param: "state" });
  }
  const { rows, next } = isOne
    ? await keys.list(account, { ...page, day, filter })
    : await people.keys({ ...page, day });
  return { json: { keys: rows.map((row) => rowJson(row, now())), next } };
}

const rowJson = ({ key, lastUsedAtMs, totals }: KeyRow, nowMs: number) => ({
  ...toJson(key, nowMs),
  last_used_at: isoTime(lastUsedAtMs),
  requests_today: totals.requests,
  tokens_today: totals.tokens,
});

const accountId = z.string().refine(
  isAccountId,
  "The id of an owner (own_…) or of a project (prj_…)",
);
const LIST = z.strictObject({
  ...PAGE,
  state: stateFilter,
  account: accountId.optional(),
});

async function create(
  call: AdminCall<unknown, z.output<typeof NEW>>,
): Promise<AdminAnswer> {
  const { deps, actor, idempotencyKey, body: { account, ...wanted } } = call;
  const { keys, people, defaults, defaultLimits, now } = deps;
  if (await people.name(account) === null) {
    const message = "There is no account of this id";
    throw new AdminRefused("not_found", message, { param: "account" });
  }
  const own = await defaults.read(account);
  const base = withDefaults(newSettings(defaultLimits), own, now());
  const settings = { ...base, ...settingsOf(wanted, base, deps) };
  const once = idempotencyKey === undefined
    ? undefined
    : digest(`admin ${idempotencyKey}`);
  const created = await keys.create({
    ownerId: account,
    settings,
    actor,
    ...once !== undefined && { once },
  });
  return createdAnswer(created, deps);
}

const { state: _, ...NEW_MEMBERS } = WHOLE.shape;
const NEW = z.strictObject({ account: accountId, ...NEW_MEMBERS });

/**
 * The settings of a key for which a request states none: no limits, all scopes, no
 * expiry.
 */
const bare = (): Partial<KeySettings> => ({
  ...newSettings({ key: UNLIMITED, owner: UNLIMITED }),
});

/** Routes of the scope `keys`. */
export const KEY_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/keys",
    scope: "keys",
    summary: "List the keys of all accounts, or of one",
    query: LIST,
    body: NO_BODY,
    answers: "json",
    run: list,
  }),
  adminRoute({
    method: "POST",
    path: "/keys",
    scope: "keys",
    summary:
      "Create a key; its value is in this answer only. With the header Idempotency-Key, a request that is sent twice makes one key",
    query: NOTHING,
    body: NEW,
    answers: "json",
    run: create,
  }),
  adminRoute({
    method: "GET",
    path: "/keys/:id",
    scope: "keys",
    summary: "Show a key",
    query: NOTHING,
    body: NO_BODY,
    answers: "json",
    run: async (call) => answerOf(await find(call), call.deps),
  }),
  adminRoute({
    method: "PUT",
    path: "/keys/:id",
    scope: "keys",
    summary:
      "Set all settings of a key: what is not stated is unlimited. Twice is the same as once",
    query: NOTHING,
    body: WHOLE,
    answers: "json",
    run: (call) => change(call, bare),
  }),
  adminRoute({
    method: "PATCH",
    path: "/keys/:id",
    scope: "keys",
    summary: "Change some settings of a key",
    query: NOTHING,
    body: CHANGES,
    answers: "json",
    run: (call) => change(call, () => ({})),
  }),
  adminRoute({
    method: "DELETE",
    path: "/keys/:id",
    scope: "keys",
    summary: "Delete a key for good",
    query: NOTHING,
    body: NO_BODY,
    answers: "nothing",
    run: async (call) => {
      const { target } = await findTarget(call);
      await call.deps.keys.delete(target);
      return { status: 204 };
    },
  }),
  adminRoute({
    method: "POST",
    path: "/keys/:id/rotate",
    scope: "keys",
    summary:
      "Make a new key with the same settings; the old one works on for this long",
    query: NOTHING,
    body: z.strictObject({ old: graceSchema.default("now") }),
    answers: "json",
    run: async (call) => {
      const { target } = await findTarget(call);
      const { ms } = GRACES[call.body.old];
      return createdAnswer(await call.deps.keys.rotate(target, ms), call.deps);
    },
  }),
  adminRoute({
    method: "POST",
    path: "/keys/:id/stop",
    scope: "keys",
    summary: "Disable a key and end its running requests",
    query: NOTHING,
    body: NOTHING,
    answers: "json",
    run: async (call) => {
      const { deps, actor } = call;
      const { key, target } = await findTarget(call);
      const { ownerId, id: keyId, hint, description } = key;
      const after = key.state === "disabled"
        ? key
        : await deps.keys.disable(target);
      const about = { keyId, hint, description };
      await deps.audit.add(ownerId, {
        action: "key.stop_requested",
        ...actor,
        ...about,
      });
      await deps.sendStop([{ keyId, ownerId }]);
      return answerOf(after, deps);
    },
  }),
];

/** Routes of the admin API for the keys of all accounts. */
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type KeyRecord, UNLIMITED } from "@gateway/shared/keys/record";
import { defined } from "@gateway/shared/process/env";
import { z } from "zod";
import { withDefaults } from "../domain/keys/default_store.ts";
import { isoTime, toJson } from "../domain/keys/key_json.ts";
import { KeyRefused } from "../domain/keys/key_refused.ts";
import type { KeyRow } from "../domain/keys/key_page.ts";
import { GRACES, graceSchema } from "../domain/keys/graces.ts";
import type { CreatedKey } from "../domain/keys/key_store.ts";
import { type KeySettings, newSettings } from "../domain/keys/settings.ts";
import { KEY, KEYS, NEW_KEY } from "./answers.ts";
import {
  accountId,
  KEY_MEMBERS,
  NO_BODY,
  NOTHING,
  PAGE,
  queryFlag,
  reason,
  stateFilter,
} from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
  onceOf,
} from "./route.ts";
import { checkAccount, modelIds, stopKeys } from "./shared_steps.ts";

const { description, limits, ...OTHERS } = KEY_MEMBERS;
const force = z.boolean().default(false).meta({
  description: "Accept models that are not in the list (yet)",
});
const optional = z.strictObject({ ...OTHERS, limits }).partial();
const SETTINGS = { description, ...optional.shape, force };
const WHOLE = z.strictObject({ ...SETTINGS, reason: reason.optional() });
const CHANGES = WHOLE.extend({ description: description.optional() });
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
  deps: AdminDeps,
): Partial<KeySettings> {
  const { expires_at: expiresAtMs, allowed_cidrs: networks } = wanted;
  if (expiresAtMs && expiresAtMs <= deps.now()) {
    const param = "expires_at";
    throw new AdminRefused("invalid_value", "This time has passed", { param });
  }
  const models = wanted.models && modelIds(deps, wanted.models, {
    isForced: wanted.force,
    before: before.models,
  });
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
  if (ownerId === null) throw new KeyRefused("not_found");
  return await keys.find(ownerId, id);
}

/** Returns the key that is to be changed, and the version that the change expects. */
async function findTarget(
  call: AdminCall<unknown, unknown>,
  reason?: string,
) {
  const key = await find(call);
  const { ifMatch, actor } = call;
  if (ifMatch !== undefined && ifMatch !== String(key.version)) {
    throw new AdminRefused(
      "precondition_failed",
      `The key has the version ${key.version}, not ${ifMatch}`,
    );
  }
  const version = ifMatch === undefined ? null : key.version;
  const { ownerId } = key;
  return { key, target: { ownerId, keyId: key.id, version, actor, reason } };
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
  const { key, target } = await findTarget(call, body.reason);
  const base = { ...key, ...baseOf(key) };
  const settings = { ...baseOf(key), ...settingsOf(body, base, deps) };
  const wanted = defined({ ...settings, state: body.state });
  return answerOf(await deps.keys.change(target, wanted), deps);
}

/** Ends what runs with a key that was just disabled or deleted, and notes that. */
async function stopRunning(
  { deps, actor }: AdminCall<unknown, unknown>,
  { id: keyId, ownerId, hint, description }: KeyRecord,
): Promise<void> {
  await stopKeys(deps, [{ keyId, ownerId }]);
  const action = "key.stop_requested";
  const about = { keyId, hint, description };
  await deps.audit.add(ownerId, { action, ...actor, ...about });
}

async function list(
  { deps, query }: AdminCall<z.output<typeof LIST>, unknown>,
): Promise<AdminAnswer> {
  const { people, keys, now } = deps;
  const { account, state: filter, ...page } = query;
  const day = usageDay(now());
  const isOne = account !== undefined;
  if (isOne) await checkAccount(deps, account);
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

const LIST = z.strictObject({
  ...PAGE,
  state: stateFilter,
  account: accountId.optional(),
});

async function create(
  call: AdminCall<unknown, z.output<typeof NEW>>,
): Promise<AdminAnswer> {
  const { deps, actor, body: { account, ...wanted } } = call;
  const { keys, defaults, defaultLimits, now } = deps;
  await checkAccount(deps, account);
  const own = await defaults.read(account);
  const base = withDefaults(newSettings(defaultLimits), own, now());
  const settings = { ...base, ...settingsOf(wanted, base, deps) };
  const created = await keys.create({
    ownerId: account,
    settings,
    actor,
    once: onceOf(call),
  });
  return createdAnswer(created, deps);
}

const { state: _, ...NEW_MEMBERS } = SETTINGS;
const NEW = z.strictObject({ account: accountId, ...NEW_MEMBERS });

/**
 * The settings of a key for which a request states none: no limits, all scopes, no
 * expiry.
 */
const bare = (): Partial<KeySettings> => ({
  ...newSettings({ key: UNLIMITED, owner: UNLIMITED }),
});

const END = z.strictObject({
  stop_running: queryFlag,
  reason: reason.optional(),
});

/** Routes of keys. */
export const KEY_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/keys",
    scope: "keys",
    summary: "List the keys of all accounts, or of one",
    query: LIST,
    body: NO_BODY,
    answers: KEYS,
    run: list,
  }),
  adminRoute({
    method: "POST",
    path: "/keys",
    scope: "keys",
    headers: ["idempotency-key"],
    summary:
      "Create a key; its value is in this answer only. With the header Idempotency-Key, a request that is sent twice makes one key",
    query: NOTHING,
    body: NEW,
    answers: NEW_KEY,
    run: create,
  }),
  adminRoute({
    method: "GET",
    path: "/keys/:id",
    scope: "keys",
    summary: "Show a key",
    query: NOTHING,
    body: NO_BODY,
    answers: KEY,
    run: async (call) => answerOf(await find(call), call.deps),
  }),
  adminRoute({
    method: "PUT",
    path: "/keys/:id",
    scope: "keys",
    headers: ["if-match"],
    summary:
      "Set all settings of a key: what is not stated is unlimited. Twice is the same as once",
    query: NOTHING,
    body: WHOLE,
    answers: KEY,
    run: (call) => change(call, bare),
  }),
  adminRoute({
    method: "PATCH",
    path: "/keys/:id",
    scope: "keys",
    headers: ["if-match"],
    summary: "Change some settings of a key",
    query: NOTHING,
    body: CHANGES,
    answers: KEY,
    run: (call) => change(call, () => ({})),
  }),
  adminRoute({
    method: "DELETE",
    path: "/keys/:id",
    scope: "keys",
    headers: ["if-match"],
    summary: "Delete a key for good, and end its running requests if asked to",
    query: END,
    body: NO_BODY,
    answers: "nothing",
    run: async (call) => {
      const { target } = await findTarget(call, call.query.reason);
      const key = await call.deps.keys.delete(target);
      if (call.query.stop_running) await stopRunning(call, key);
      return { status: 204 };
    },
  }),
  adminRoute({
    method: "POST",
    path: "/keys/:id/rotate",
    scope: "keys",
    headers: ["if-match", "idempotency-key"],
    summary:
      "Make a new key with the same settings; the old one works on for this long",
    query: NOTHING,
    body: z.strictObject({ old: graceSchema.default("now") }),
    answers: NEW_KEY,
    run: async (call) => {
      const { target } = await findTarget(call);
      const { ms } = GRACES[call.body.old];
      const once = onceOf(call);
      const created = await call.deps.keys.rotate({ ...target, once }, ms);
      return createdAnswer(created, call.deps);
    },
  }),
  adminRoute({
    method: "POST",
    path: "/keys/:id/stop",
    scope: "keys",
    headers: ["if-match"],
    summary: "Disable a key and end its running requests",
    query: NOTHING,
    body: z.strictObject({ reason: reason.optional() }),
    answers: KEY,
    run: async (call) => {
      const { target } = await findTarget(call, call.body.reason);
      const key = await call.deps.keys.change(target, { state: "disabled" });
      await stopRunning(call, key);
      return answerOf(key, call.deps);
    },
  }),
];

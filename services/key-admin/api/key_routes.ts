/** Routes of the admin API for the keys of all accounts. */
import { isKeyId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type KeyRecord, UNLIMITED } from "@gateway/shared/keys/record";
import { defined } from "@gateway/shared/process/env";
import { z } from "zod";
import { withDefaults } from "../domain/keys/default_store.ts";
import { isoTime, toJson } from "../domain/keys/key_json.ts";
import { KeyRefused } from "../domain/keys/key_refused.ts";
import { type KeyRow, PAGE_ROWS_MAX } from "../domain/keys/key_page.ts";
import { GRACES, graceSchema } from "../domain/keys/graces.ts";
import type { CreatedKey } from "../domain/keys/key_store.ts";
import { type KeySettings, newSettings } from "../domain/keys/settings.ts";
import { ALL_KEY_SORTS } from "../domain/operators/people_rows.ts";
import { KEY, KEYS, NEW_KEY, SOME_KEYS } from "./answers.ts";
import {
  accountId,
  KEY_MEMBERS,
  NO_BODY,
  NOTHING,
  PAGE,
  queryFlag,
  reason,
  sortBy,
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
import {
  checkAccount,
  modelIds,
  pageJson,
  stopKeys,
  usedToday,
} from "./shared_steps.ts";

const { description, limits, ...OTHERS } = KEY_MEMBERS;
const force = z.boolean().default(false).meta({
  description: "Accept models that are not in the list (yet)",
});
const optional = z.strictObject({ ...OTHERS, limits }).partial();
const SETTINGS = { description, ...optional.shape, force };
const WHOLE = z.strictObject({ ...SETTINGS, reason: reason.optional() });
const CHANGES = WHOLE.extend({ description: description.optional() });
type KeyChanges = z.output<typeof CHANGES>;

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
  wanted: KeyChanges,
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
    priority: wanted.priority,
    keepSeconds: wanted.keep_seconds,
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
  call: AdminCall<unknown, KeyChanges>,
  baseOf: (key: KeyRecord) => Partial<KeySettings>,
): Promise<AdminAnswer> {
  const { deps, body } = call;
  const { key, target } = await findTarget(call, body.reason);
  const base = { ...key, ...baseOf(key) };
  const settings = { ...baseOf(key), ...settingsOf(body, base, deps) };
  const wanted = defined({ ...settings, state: body.state });
  return answerOf(await deps.keys.change(target, wanted), deps);
}

/** Ends what runs with keys that were just disabled or deleted, and notes that. */
async function stopRunning(
  { deps, actor }: AdminCall<unknown, unknown>,
  keys: readonly KeyRecord[],
): Promise<void> {
  await stopKeys(
    deps,
    keys.map(({ id: keyId, ownerId }) => ({ keyId, ownerId })),
  );
  const action = "key.stop_requested";
  for (const { id: keyId, ownerId, hint, description } of keys) {
    const about = { keyId, hint, description };
    await deps.audit.add(ownerId, { action, ...actor, ...about });
  }
}

async function list(
  { deps, query }: AdminCall<z.output<typeof LIST>, unknown>,
): Promise<AdminAnswer> {
  const { people, keys, now } = deps;
  const { account, state: filter, ...rest } = query;
  const wanted = { ...rest, filter, day: usageDay(now()) };
  const page = account === undefined
    ? await people.keys(wanted)
    : await keys.list(await existing(deps, account), wanted);
  return { json: pageJson("keys", page, (row) => rowJson(row, now())) };
}

/** The id of an account that there is. */
async function existing(deps: AdminDeps, account: string): Promise<string> {
  await checkAccount(deps, account);
  return account;
}

const rowJson = ({ key, lastUsedAtMs, totals }: KeyRow, nowMs: number) => ({
  ...toJson(key, nowMs),
  last_used_at: isoTime(lastUsedAtMs),
  ...usedToday(totals),
});

const LIST = z.strictObject({
  ...PAGE,
  state: stateFilter,
  account: accountId.optional(),
  sort: sortBy(ALL_KEY_SORTS),
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

/** Disables keys, which is the same if it is done twice. */
async function disable(
  call: AdminCall<unknown, z.output<typeof SOME>>,
): Promise<AdminAnswer> {
  const { deps, actor, body: { reason, stop_running: isStopped } } = call;
  const found = await findAll(call);
  const disabled: KeyRecord[] = [];
  for (const { ownerId, id: keyId } of found) {
    const target = { ownerId, keyId, version: null, actor, reason };
    disabled.push(await deps.keys.change(target, { state: "disabled" }));
  }
  if (isStopped) await stopRunning(call, disabled);
  return { json: { keys: disabled.map((key) => toJson(key, deps.now())) } };
}

/** The keys that a request names; throws before anything is changed. */
async function findAll(
  { deps: { people, keys }, body: { keys: ids, account } }: AdminCall<
    unknown,
    z.output<typeof SOME>
  >,
): Promise<KeyRecord[]> {
  const owners = account === undefined ? await people.ownersOf(ids) : null;
  const found = await Promise.all([...new Set(ids)].map(async (id) => {
    const ownerId = account ?? owners?.get(id);
    const key = ownerId === undefined ? null : await keys.get(ownerId, id);
    return key ?? id;
  }));
  const missing = found.find((key) => typeof key === "string");
  if (missing !== undefined) {
    const message = `There is no key ${missing}; nothing was changed`;
    throw new AdminRefused("not_found", message, { param: "keys" });
  }
  return found.filter((key) => typeof key !== "string");
}

const SOME = z.strictObject({
  keys: z.array(z.string().refine(isKeyId, "The id of a key (key_…)")).min(1)
    .max(PAGE_ROWS_MAX).meta({ description: "Their ids" }),
  account: accountId.optional().meta({
    description: "The account of all of them, which saves a search",
  }),
  stop_running: z.boolean().default(false).meta({
    description: "End their running requests, too",
  }),
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
    method: "POST",
    path: "/keys/disable",
    scope: "keys",
    summary:
      "Disable keys of any accounts together, and end their running requests if asked to. If one is missing, none is changed",
    query: NOTHING,
    body: SOME,
    answers: SOME_KEYS,
    run: disable,
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
      if (call.query.stop_running) await stopRunning(call, [key]);
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
      await stopRunning(call, [key]);
      return answerOf(key, call.deps);
    },
  }),
];

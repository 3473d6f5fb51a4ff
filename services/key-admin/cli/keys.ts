/** `keys …`: what owners do with their keys in the console, as commands. */
import type { KeyRecord } from "@gateway/shared/keys/record";
import { defined } from "@gateway/shared/process/env";
import { withDefaults } from "../domain/keys/default_store.ts";
import { GRACES, type Target } from "../domain/keys/key_store.ts";
import {
  type KeySettings,
  LIMIT_NAMES,
  newSettings,
  unknownModel,
} from "../domain/keys/settings.ts";
import {
  type Area,
  COMMAND_LINE,
  CommandRefused,
  findOwner,
  findProject,
  type Invocation,
  limitsFrom,
  type Output,
  queryOf,
  UsageError,
} from "./command_line.ts";
import { isoTime, toJson } from "../domain/keys/key_json.ts";

const SETTING_OPTIONS = [
  "description",
  "expires",
  "models",
  "scopes",
  "allowedCidrs",
  "endUsers",
  ...LIMIT_NAMES,
] as const;
const KEY_OPTIONS = [...SETTING_OPTIONS, "force"] as const;
const LIST_OPTIONS = ["search", "state", "rows", "after"] as const;

function onKey(
  run: (invocation: Invocation, target: Target) => Promise<KeyRecord | Output>,
) {
  return async (invocation: Invocation): Promise<Output> => {
    const { people, options: { owner, project }, word: keyId } = invocation;
    // Without `--owner` or `--project`, the id says whose key it is.
    const isNamed = owner !== undefined || project !== undefined;
    const found = isNamed ? null : await people.ownerOf(keyId);
    const ownerId = found ?? await keyOwner(invocation);
    const target = { ownerId, keyId, version: null, actor: COMMAND_LINE };
    const result = await run(invocation, target);
    return "json" in result
      ? result
      : { json: toJson(result, invocation.now()) };
  };
}

async function create(invocation: Invocation): Promise<Output> {
  const { keys, owners, now, defaultLimits, options } = invocation;
  const { owner, project } = options;
  if (options.description === undefined) {
    throw new UsageError("--description: Say what the key is for");
  }
  // The output points out a new address, which may be misspelled.
  const isNew = owner !== undefined && project === undefined &&
    await owners.find(owner) === null;
  const ownerId = isNew
    ? await owners.ensure(owner)
    : await keyOwner(invocation);
  const invite = isNew
    ? `\nThe owner ${owner} is new. To let them sign in: owners invite ${owner}`
    : "";
  const own = await invocation.defaults.read(ownerId);
  const standard = withDefaults(newSettings(defaultLimits), own, now());
  const settings = { ...standard, ...changedSettings(invocation, standard) };
  const input = { ownerId, settings, actor: COMMAND_LINE };
  const { key, value } = await keys.create(input);
  return {
    json: { ...toJson(key, now()), key: value },
    note: `\nStore the key now: it is not shown again.${invite}`,
  };
}

const COLUMNS = [
  "id",
  "state",
  "hint",
  "created_at",
  "expires_at",
  "last_used_at",
  "requests_today",
  "description",
];

const NO_KEYS = "No keys found. Create one: keys create --description TEXT";

async function list(invocation: Invocation): Promise<Output> {
  const nowMs = invocation.now();
  const query = {
    filter: invocation.options.state ?? "all",
    ...queryOf(invocation),
  };
  const { rows, next } = await invocation.keys.list(
    await keyOwner(invocation),
    query,
  );
  const keys = rows.map(({ key, lastUsedAtMs, totals }) => ({
    ...toJson(key, nowMs),
    last_used_at: isoTime(lastUsedAtMs),
    requests_today: totals.requests,
    tokens_today: totals.tokens,
  }));
  const more = next === null ? undefined : `\nMore: --after "${next}"`;
  return {
    json: { keys, next },
    table: { rows: keys, columns: COLUMNS },
    note: more ?? (keys.length === 0 ? NO_KEYS : ""),
  };
}

const show = ({ keys }: Invocation, { ownerId, keyId }: Target) =>
  keys.find(ownerId, keyId);

async function edit(
  invocation: Invocation,
  target: Target,
): Promise<KeyRecord> {
  const { keys, options } = invocation;
  if (SETTING_OPTIONS.every((name) => options[name] === undefined)) {
    throw new UsageError(
      "Nothing to change: give an option such as --rpm 60",
    );
  }
  const before = await keys.find(target.ownerId, target.keyId);
  const settings = changedSettings(invocation, before);
  return await keys.edit({ ...target, version: before.version }, settings);
}

const enable = ({ keys }: Invocation, target: Target) => keys.enable(target);

const disable = async (invocation: Invocation, target: Target) =>
  await end(invocation, await invocation.keys.disable(target), "disabled");

const remove = async (invocation: Invocation, target: Target) =>
  await end(invocation, await invocation.keys.delete(target), "deleted");

/** Stops the running requests of a key that was disabled or deleted, if asked to. */
async function end(
  { sendStop, audit, options, now }: Invocation,
  key: KeyRecord,
  state: "disabled" | "deleted",
): Promise<Output> {
  const { id: keyId, ownerId, hint, description } = key;
  if (options.stopRunning) {
    await sendStop([{ keyId, ownerId }]).catch((cause) => {
      throw new CommandRefused(
        `${keyId} is ${state}, but NATS or Redis does not answer: its running requests end within 11 seconds instead of one`,
        { cause },
      );
    });
    const about = { ...COMMAND_LINE, keyId, hint, description };
    await audit.add(ownerId, { action: "key.stop_requested", ...about });
  }
  return { json: { ...toJson(key, now()), state } };
}

async function rotate(
  { keys, now, options: { old = "24h" } }: Invocation,
  target: Target,
): Promise<Output> {
  const { ms, text } = GRACES[old];
  const { key, value } = await keys.rotate(target, ms);
  return {
    json: { ...toJson(key, now()), key: value },
    note:
      `\nStore the new key now: it is not shown again. The old key stops working ${text}.`,
  };
}

const MODELS_UNKNOWN =
  "Warning: the names of the models were not checked, because the list of models is not known here: " +
  "either model servers list them, or MODELS_FILE and UPSTREAM_BASE_URL are not set as for the edges. " +
  "GET /v1/models with the key shows which of them exist";

/** The account that `--owner` or `--project` names, or that of the first owner. */
async function keyOwner(invocation: Invocation): Promise<string> {
  const { owners, options: { owner, project } } = invocation;
  if (project !== undefined) {
    if (owner !== undefined) {
      throw new UsageError("--owner and --project: A key has one account");
    }
    return (await findProject(invocation, project)).id;
  }
  return owner === undefined
    ? await owners.first()
    : await findOwner(invocation, owner);
}

/**
 * The settings that the options change. Limits are replaced together: those without an
 * option stay as in `before`.
 */
function changedSettings(
  invocation: Invocation,
  before: Pick<KeySettings, "limits" | "models">,
): Partial<KeySettings> {
  const { options, now, models: existing, warn } = invocation;
  const { description, scopes, expires: expiresAtMs } = options;
  const { allowedCidrs: networks, endUsers } = options;
  const models = options.models && idsOf(options.models, invocation);
  if (expiresAtMs && expiresAtMs <= now()) {
    throw new UsageError(
      "--expires: The time is in the past. Give a later one, or never",
    );
  }
  if (models?.length && !existing && !options.force) warn(MODELS_UNKNOWN);
  const mistake = models && existing && !options.force &&
    unknownModel(models, [...existing, ...before.models]);
  if (mistake) {
    throw new UsageError(
      `--models: ${mistake}\nTo name a model before it is configured, add --force`,
    );
  }
  const limits = limitsFrom(options, before.limits);
  const chosen = {
    description,
    scopes,
    models,
    networks,
    endUsers,
    expiresAtMs,
  };
  return { ...defined(chosen), limits };
}

/**
 * The ids of models that may be named by aliases; says which id an alias stands for.
 */
function idsOf(
  names: readonly string[],
  { findModel, warn }: Invocation,
): string[] {
  const ids = names.map((name) => {
    const id = findModel(name)?.id ?? name;
    if (id !== name) {
      warn(`'${name}' is an alias: the key may use the model '${id}'`);
    }
    return id;
  });
  return [...new Set(ids)];
}

/** The commands on keys. */
export const KEYS: Area = {
  title: "Manage API keys.",
  options: ["owner", "project"],
  commands: [
    {
      usage: "create",
      help: "create a key and print it",
      run: create,
      options: KEY_OPTIONS,
    },
    {
      usage: "list",
      help: "list keys, newest first",
      run: list,
      options: LIST_OPTIONS,
    },
    { usage: "show <id>", help: "show one key", run: onKey(show) },
    {
      usage: "edit <id>",
      help: "change the given settings",
      run: onKey(edit),
      options: KEY_OPTIONS,
    },
    {
      usage: "disable <id>",
      help: "refuse its requests",
      run: onKey(disable),
      options: ["stopRunning"],
    },
    {
      usage: "enable <id>",
      help: "accept its requests again",
      run: onKey(enable),
    },
    {
      usage: "delete <id>",
      help: "delete it for good",
      run: onKey(remove),
      options: ["stopRunning"],
    },
    {
      usage: "rotate <id>",
      help: "replace it with a new key",
      run: onKey(rotate),
      options: ["old"],
    },
  ],
  notes:
    `Limits of a new key that are not given come from KEY_… in the environment; 0 means
no limit. A key expires at a time such as 2027-01-31T12:00:00Z or at the end of a day, in UTC.
"create" adds the owner if the address is new. Commands with an id find the key's owner.
Commands work on the cluster that "deno task up" runs, or on the one at REDIS_URL.`,
};

import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { defined } from "@gateway/shared/process/env";
import { PAGE_ROWS } from "../domain/keys/key_page.ts";
import { GRACES, type Target } from "../domain/keys/key_store.ts";
import {
  type KeySettings,
  LIMIT_NAMES,
  newSettings,
  unknownModel,
} from "../domain/keys/settings.ts";
import { type Answer, rowToJson, toJson } from "./answer.ts";
import {
  type Area,
  type Call,
  COMMAND_LINE,
  CommandRefused,
  findOwner,
  limitsFrom,
  type OptionName,
  UsageError,
} from "./command_line.ts";

const SETTING_OPTIONS = [
  ...["description", "expires", "models", "scopes"] as const,
  ...LIMIT_NAMES,
];
const KEY_OPTIONS: OptionName[] = ["owner", ...SETTING_OPTIONS, "force"];
const LIST_OPTIONS = ["owner", "search", "state", "rows", "after"] as const;
const ROTATE_OPTIONS = ["owner", "old"] as const;
const END_OPTIONS = ["owner", "stopRunning"] as const;

export const KEYS: Area = {
  title: "Manage API keys.",
  commands: [
    ["create", "create a key and print it", create, KEY_OPTIONS],
    ["list", "list keys, newest first", list, LIST_OPTIONS],
    ["show <id>", "show one key", onKey(show), ["owner"]],
    ["edit <id>", "change the given settings", onKey(edit), KEY_OPTIONS],
    ["disable <id>", "refuse its requests", onKey(end("disable")), END_OPTIONS],
    ["enable <id>", "accept its requests again", onKey(enable), ["owner"]],
    ["delete <id>", "delete it for good", onKey(end("delete")), END_OPTIONS],
    ["rotate <id>", "replace it with a new key", onKey(rotate), ROTATE_OPTIONS],
  ],
  notes:
    `Limits of a new key that are not given come from KEY_… in the environment; 0 means
no limit. A key expires at a time such as 2027-01-31T12:00:00Z or at the end of a day, in UTC.
"create" adds the owner if the address is new.
Commands work on the cluster that "deno task up" runs, or on the one at REDIS_URL.`,
};

function onKey(
  run: (call: Call, target: Target) => Promise<KeyRecord | Answer>,
) {
  return async (call: Call): Promise<Answer> => {
    const ids = { ownerId: await keyOwner(call), keyId: call.word };
    const target = { ...ids, version: null, actor: COMMAND_LINE };
    const result = await run(call, target);
    return "json" in result ? result : { json: toJson(result, call.now()) };
  };
}

async function create(call: Call): Promise<Answer> {
  const { keys, owners, now, defaultLimits, options } = call;
  const { owner, description } = options;
  if (description === undefined) {
    throw new UsageError("--description: Say what the key is for");
  }
  const standard = newSettings(defaultLimits);
  const settings = { ...standard, ...givenSettings(call, standard) };
  // The output points out a new address, which may be misspelled.
  const isNew = owner !== undefined && await owners.find(owner) === null;
  const ownerId = isNew ? await owners.ensure(owner) : await keyOwner(call);
  const invite = isNew
    ? `\nThe owner ${owner} is new. To let them sign in: owners invite ${owner}`
    : "";
  const input = { ownerId, settings, actor: COMMAND_LINE };
  const { key, value } = await keys.create(input);
  return {
    json: { ...toJson(key, now()), key: value },
    note: `\nStore the key now: it is not shown again.${invite}`,
  };
}

const COLUMNS = [
  ...["id", "state", "hint", "created_at", "expires_at", "last_used_at"],
  ...["requests_today", "description"],
];

const NO_KEYS = "No keys found. Create one: keys create --description TEXT";

async function list(call: Call): Promise<Answer> {
  const { search = "", state = "all", rows = PAGE_ROWS, after = "" } =
    call.options;
  const nowMs = call.now();
  const day = usageDay(nowMs);
  const query = { filter: state, search, rows, after, day };
  const page = await call.keys.list(await keyOwner(call), query);
  const { next } = page;
  const keys = page.rows.map((row) => rowToJson(row, nowMs));
  return {
    json: { keys, next },
    table: { rows: keys, columns: COLUMNS },
    ...next !== null
      ? { note: `\nMore: --after "${next}"` }
      : keys.length === 0 && { note: NO_KEYS },
  };
}

function show({ keys }: Call, { ownerId, keyId }: Target): Promise<KeyRecord> {
  return keys.find(ownerId, keyId);
}

function enable({ keys }: Call, target: Target): Promise<KeyRecord> {
  return keys.enable(target);
}

async function edit(call: Call, target: Target): Promise<KeyRecord> {
  const { keys, options } = call;
  if (SETTING_OPTIONS.every((name) => options[name] === undefined)) {
    throw new UsageError("Nothing to change: give an option such as --rpm 60");
  }
  const before = await keys.find(target.ownerId, target.keyId);
  const settings = givenSettings(call, before);
  return await keys.edit({ ...target, version: before.version }, settings);
}

/** Disables or deletes a key, and stops its running requests if asked to. */
function end(how: "disable" | "delete") {
  const state = how === "delete" ? "deleted" : "disabled";
  return async (call: Call, target: Target): Promise<Answer> => {
    const { keys, sendStop, options, now } = call;
    const key = await keys[how](target);
    if (options.stopRunning) {
      await sendStop(target).catch((cause) => {
        throw new CommandRefused(
          `${key.id} is ${state}, but its running requests could not be stopped: NATS does not answer. Try again with --stop-running when it does`,
          { cause },
        );
      });
    }
    return { json: { ...toJson(key, now()), state } };
  };
}

async function rotate(
  { keys, now, options: { old = "24h" } }: Call,
  target: Target,
): Promise<Answer> {
  const { ms, text } = GRACES[old];
  const { key, value } = await keys.rotate(target, ms);
  return {
    json: { ...toJson(key, now()), key: value },
    note:
      `\nStore the new key now: it is not shown again. The old key stops working ${text}.`,
  };
}

const MODELS_UNKNOWN =
  "Warning: the names of the models were not checked, because the list of models is not known here. " +
  "Set MODELS_FILE or UPSTREAM_BASE_URL as for the edges";

/** The owner that was named, or the first one. */
const keyOwner = (call: Call): Promise<string> =>
  call.options.owner === undefined
    ? call.owners.first()
    : findOwner(call, call.options.owner);

/** The settings that were given. Limits are replaced together: those not given stay as in `before`. */
function givenSettings(
  { options, now, models: known, warn }: Call,
  before: Pick<KeySettings, "limits" | "models">,
): Partial<KeySettings> {
  const { description, scopes, models, expires: expiresAtMs } = options;
  if (expiresAtMs && expiresAtMs <= now()) {
    throw new UsageError(
      "--expires: The time is in the past. Give a later one, or never",
    );
  }
  if (models !== undefined && models.length > 0 && !options.force) {
    if (known === undefined) warn(MODELS_UNKNOWN);
    const mistake = known && unknownModel(models, [...known, ...before.models]);
    if (mistake) {
      throw new UsageError(
        `--models: ${mistake}\nTo name a model before it is configured, add --force`,
      );
    }
  }
  const limits = limitsFrom(options, before.limits);
  return { ...defined({ description, scopes, models, expiresAtMs }), limits };
}

import { usageDay } from "@gateway/shared/keys/limiter_state";
import { KEY_SCOPES, type KeyRecord } from "@gateway/shared/keys/record";
import { PAGE_ROWS } from "../domain/keys/key_page.ts";
import {
  KeyRefused,
  ROTATION_GRACES_MS,
  type Target,
} from "../domain/keys/key_store.ts";
import type { KeySettings } from "../domain/keys/settings.ts";
import { type Answer, rowToJson, toJson } from "./answer.ts";
import {
  type Area,
  type Call,
  type Command,
  COMMAND_LINE,
  CommandRefused,
  LIMIT_OPTIONS,
  limitsFrom,
  noOwner,
  type OptionName,
  UsageError,
} from "./command_line.ts";

const SETTING_OPTIONS: readonly OptionName[] = [
  ...["description", "expires", "models", "scopes"] as const,
  ...LIMIT_OPTIONS,
];

/** A command on one key. */
const onKey = (
  help: string,
  options: readonly OptionName[],
  run: (call: Call, target: Target) => Promise<Answer>,
): Command => ({
  ...{ help, takes: "ID", options: ["owner", ...options] },
  run: async (call) => {
    const ids = { ownerId: await findOwner(call), keyId: call.word };
    return await run(call, { ...ids, version: null, actor: COMMAND_LINE });
  },
});

/** `keys …` */
export const KEYS: Area = {
  title: "Manage API keys.",
  commands: {
    create: {
      help: "create a key and print it",
      options: ["owner", ...SETTING_OPTIONS],
      run: create,
    },
    list: {
      help: "list keys, newest first",
      options: ["owner", "search", "state", "rows", "after"],
      run: list,
    },
    show: onKey("show one key", [], async (call, target) => {
      return answer(call, await find(call, target));
    }),
    edit: onKey("change the given settings", SETTING_OPTIONS, edit),
    disable: onKey("refuse its requests", ["stop-running"], (call, target) => {
      return end(call, target, "disable");
    }),
    enable: onKey("accept its requests again", [], async (call, target) => {
      return answer(call, await call.deps.keys.enable(target));
    }),
    delete: onKey("delete it for good", ["stop-running"], (call, target) => {
      return end(call, target, "delete");
    }),
    rotate: onKey("replace it with a new key", ["old"], rotate),
  },
  notes:
    `Limits of a new key that are not given come from KEY_… in the environment.
"create" adds the owner if the address is new.
Commands work on the cluster that "deno task up" runs, or on the one at REDIS_URL.`,
};

async function create(call: Call): Promise<Answer> {
  const { deps: { keys, owners, now, defaultLimits }, options } = call;
  const { owner, description } = options;
  if (description === undefined) {
    throw new UsageError("--description: Say what the key is for");
  }
  const settings = settingsFrom(call, {
    ...{ description, scopes: [...KEY_SCOPES], models: [] },
    ...{ limits: defaultLimits, expiresAtMs: null },
  });
  // The output points out a new address, which may be misspelt.
  const isNew = owner !== undefined && await owners.find(owner) === null;
  const ownerId = isNew ? await owners.ensure(owner) : await findOwner(call);
  const invite = isNew
    ? `\nThe owner ${owner} is new. To let them sign in: owners invite ${owner}`
    : "";
  const order = { ownerId, settings, actor: COMMAND_LINE };
  const { key, value } = await keys.create(order);
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
  const { deps: { keys, now }, options } = call;
  const { search = "", state = "all", rows = PAGE_ROWS, after = "" } = options;
  const nowMs = now();
  const page = await keys.list(await findOwner(call), {
    ...{ filter: state, search, rows, after },
    day: usageDay(nowMs),
  });
  const json = page.rows.map((row) => rowToJson(row, nowMs));
  const { next, total } = page;
  return {
    json: { keys: json, total, next },
    table: { rows: json, columns: COLUMNS },
    ...next !== null
      ? { note: `\nMore: --after "${next}"` }
      : json.length === 0 && { note: NO_KEYS },
  };
}

async function edit(call: Call, target: Target): Promise<Answer> {
  const { deps: { keys }, options } = call;
  if (SETTING_OPTIONS.every((name) => options[name] === undefined)) {
    throw new UsageError("Nothing to change: give an option such as --rpm 60");
  }
  const before = await find(call, target);
  const settings = settingsFrom(call, before);
  const { version } = before;
  return answer(call, await keys.edit({ ...target, version }, settings));
}

async function end(
  { deps: { keys, sendStop, now }, options }: Call,
  target: Target,
  how: "disable" | "delete",
): Promise<Answer> {
  const { keyId, ownerId } = target;
  const key = await keys[how](target);
  const state = how === "delete" ? "deleted" : "disabled";
  if (options["stop-running"]) {
    await sendStop({ keyId, ownerId }).catch((cause) => {
      throw new CommandRefused(
        `${keyId} is ${state}, but its running requests could not be stopped: no answer from NATS`,
        { cause },
      );
    });
  }
  return { json: { ...toJson(key, now()), state } };
}

async function rotate(
  { deps: { keys, now }, options: { old = "24h" } }: Call,
  target: Target,
): Promise<Answer> {
  const { keyId } = target;
  const graceMs = ROTATION_GRACES_MS[old] ?? 0;
  const { key, value } = await keys.rotate(target, graceMs);
  return {
    json: { ...toJson(key, now()), key: value, replaces: keyId },
    note: "\nStore the new key now: it is not shown again. " +
      (graceMs === 0
        ? "The old key no longer works."
        : `The old key works for another ${old}.`),
  };
}

async function find(
  { deps: { keys } }: Call,
  { ownerId, keyId }: Target,
): Promise<KeyRecord> {
  const key = await keys.get(ownerId, keyId);
  if (key === null) throw new KeyRefused("not_found");
  return key;
}

const answer = ({ deps: { now } }: Call, key: KeyRecord): Answer => ({
  json: toJson(key, now()),
});

/** The owner that was named, or the first one. */
async function findOwner(
  { deps: { owners }, options: { owner } }: Call,
): Promise<string> {
  if (owner === undefined) return await owners.first();
  const ownerId = await owners.find(owner);
  if (ownerId === null) throw noOwner(owner);
  return ownerId;
}

/** The settings that were given; the others as in `before`. */
function settingsFrom(
  { options, deps: { now } }: Call,
  before: Pick<KeyRecord, keyof KeySettings>,
): KeySettings {
  const { expires = before.expiresAtMs } = options;
  if (options.expires && options.expires <= now()) {
    throw new UsageError("--expires: The time is in the past");
  }
  return {
    description: options.description ?? before.description,
    scopes: options.scopes ?? [...before.scopes],
    models: options.models ?? [...before.models],
    limits: limitsFrom(options, before.limits),
    expiresAtMs: expires,
  };
}

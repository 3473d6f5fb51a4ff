import type { WallNow } from "@gateway/shared/process/clock";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import {
  KEY_SCOPES,
  type KeyRecord,
  type Limits,
} from "@gateway/shared/keys/record";
import { z } from "zod";
import {
  type KeyRefusal,
  type KeyStore,
  ROTATION_GRACES_MS,
  type Target,
} from "../domain/keys/key_store.ts";
import { PAGE_ROWS } from "../domain/keys/key_page.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import { type KeySettings, settingsSchema } from "../domain/keys/settings.ts";
import { type OwnerDirectory, parseEmail } from "../domain/owners/directory.ts";
import {
  type Answer,
  type Call,
  check,
  type Command,
  COMMAND_LINE,
  type CommandLine,
  CommandRefused,
  LIMIT_OPTIONS,
  limitsFrom,
  noOwner,
  type OptionName,
  type Options,
  runCommand,
  UsageError,
  wholeNumber,
} from "./command_line.ts";
import { describeKey, rowToJson, tableOf, toJson } from "./key_text.ts";

/** What `keys …` works with. */
export interface KeyCommandDeps {
  keys: KeyStore;
  owners: OwnerDirectory;
  sendStop: SendStop;
  /** Of a new key. */
  defaultLimits: Limits;
  now: WallNow;
}

/** `keys --help` */
export const KEYS_HELP = `Manage API keys.

  keys create --description TEXT [limits and rights]
  keys list [--search WORDS] [--state enabled|disabled|with_expiry] [--rows N] [--after CURSOR]
  keys show ID
  keys edit ID [--description TEXT] [limits and rights]
  keys disable ID [--stop-running]
  keys enable ID
  keys delete ID [--stop-running]
  keys rotate ID [--old now|1h|24h|7d]    how long the old key keeps working (24h)

Limits, 0 for none; a new key gets those of KEY_… in the environment:
                    --rpm N  --tpm N  --tokens-per-day N  --concurrency N
Rights: --scopes chat,models,image,video,speech  --models a,b  --expires TIME|never
--owner EMAIL   the owner of the keys; the first owner if not given.
                "create" adds the owner if the address is new
--stop-running  also stops requests that are running now
--json          prints one object

Commands work on the cluster that "deno task up" runs, or on REDIS_URL.`;

const SETTING_OPTIONS = [
  "description",
  ...LIMIT_OPTIONS,
  "expires",
  "models",
  "scopes",
] as const;
type KeyCall = Call<KeyCommandDeps>;
type TargetCall = KeyCall & { target: Target };

/** A command on one key. */
function onKey(
  options: readonly OptionName[],
  run: (call: TargetCall) => Promise<Answer>,
): Command<KeyCommandDeps> {
  return {
    options: ["owner", ...options],
    missing: "Which key? Give its id",
    run: async (call) => {
      const target = {
        ownerId: await findOwner(call),
        keyId: call.word,
        version: null,
        actor: COMMAND_LINE,
      };
      return await run({ ...call, target });
    },
  };
}

const COMMANDS: Readonly<Record<string, Command<KeyCommandDeps>>> = {
  create: { options: ["owner", ...SETTING_OPTIONS], run: create },
  list: { options: ["owner", "search", "state", "rows", "after"], run: list },
  show: onKey([], async (call) => answer(call, await find(call))),
  edit: onKey(SETTING_OPTIONS, edit),
  disable: onKey(["stop-running"], (call) => switchOff(call, "disable")),
  enable: onKey([], async (call) => {
    const { deps: { keys }, target } = call;
    return answer(call, done(await keys.enable(target)).key);
  }),
  delete: onKey(["stop-running"], (call) => switchOff(call, "delete")),
  rotate: onKey(["old"], rotate),
};

/** Runs `keys …`. */
export const runKeysCommand = (
  deps: KeyCommandDeps,
  line: CommandLine,
): Promise<Answer> => runCommand(COMMANDS, deps, line);

async function create(call: KeyCall): Promise<Answer> {
  const { deps: { keys, now, defaultLimits }, options } = call;
  const settings = settingsFrom(options, now(), {
    description: "",
    scopes: [...KEY_SCOPES],
    models: [],
    limits: defaultLimits,
    expiresAtMs: null,
  });
  const { ownerId, note } = await ensureOwner(call);
  const order = { ownerId, settings, actor: COMMAND_LINE };
  const { key, value } = done(await keys.create(order));
  return {
    json: { ...toJson(key, now()), key: value },
    text: `Created ${key.id}\n\n    ${value}\n\n` +
      `Store it now: it is not shown again.${note}`,
  };
}

const listOptions = z.object({
  state: z.enum(
    ["all", "enabled", "disabled", "with_expiry"],
    "One of all, enabled, disabled, with_expiry",
  ).default("all"),
  rows: z.string().default(String(PAGE_ROWS)).transform(wholeNumber).refine(
    (rows) => rows >= 1 && rows <= 200,
    "A whole number from 1 to 200",
  ),
});

async function list(call: KeyCall): Promise<Answer> {
  const { deps: { keys, now }, options } = call;
  const { search = "", after: cursor } = options;
  const { state, rows } = check(listOptions, options);
  const nowMs = now();
  const page = await keys.list(await findOwner(call), {
    ...{ filter: state, search, rows },
    start: cursor === undefined ? { at: "first" } : { at: "after", cursor },
    day: usageDay(nowMs),
  });
  const nothing = search === "" && state === "all"
    ? `No keys yet. Make one: keys create --description "My first key"`
    : "No matching keys.";
  const isEmpty = page.rows.length === 0 && page.next === null;
  const more = page.next === null ? "" : `\n\nMore: --after "${page.next}"`;
  return {
    json: {
      keys: page.rows.map((row) => rowToJson(row, nowMs)),
      total: page.total,
      next: page.next,
    },
    text: isEmpty ? nothing : tableOf(page.rows, nowMs) + more,
  };
}

async function edit(call: TargetCall): Promise<Answer> {
  const { deps: { keys, now }, options, target } = call;
  if (SETTING_OPTIONS.every((name) => options[name] === undefined)) {
    throw new UsageError("Say what to change, for example --description TEXT");
  }
  const key = await find(call);
  const settings = settingsFrom(options, now(), key);
  const { version } = key;
  const edited = done(await keys.edit({ ...target, version }, settings));
  return answer(call, edited.key);
}

async function switchOff(
  { deps: { keys, sendStop, now }, options, target }: TargetCall,
  how: "disable" | "delete",
): Promise<Answer> {
  const { keyId, ownerId } = target;
  const { key } = done(await keys[how](target));
  const state = how === "delete" ? "deleted" : "disabled";
  if (options["stop-running"]) {
    try {
      await sendStop({ keyId, ownerId });
    } catch (cause) {
      throw new CommandRefused(
        `${keyId} is ${state}, but its running requests could not be stopped: no answer from NATS`,
        { cause },
      );
    }
  }
  return {
    json: { ...toJson(key, now()), state },
    text: `${keyId} is ${state}.`,
  };
}

async function rotate(
  { deps: { keys, now }, options: { old = "24h" }, target }: TargetCall,
): Promise<Answer> {
  const graceMs = Object.hasOwn(ROTATION_GRACES_MS, old)
    ? ROTATION_GRACES_MS[old]
    : undefined;
  if (graceMs === undefined) {
    const names = Object.keys(ROTATION_GRACES_MS).join(", ");
    throw new UsageError(`--old: One of ${names}`);
  }
  const { keyId } = target;
  const { key, value } = done(await keys.rotate(target, graceMs));
  return {
    json: { ...toJson(key, now()), key: value, replaces: keyId },
    text: `Created ${key.id}, which replaces ${keyId}\n\n    ${value}\n\n` +
      "Store it now: it is not shown again. " +
      (graceMs === 0
        ? "The old key no longer works."
        : `The old key works for another ${old}.`),
  };
}

async function find(
  { deps: { keys }, target: { ownerId, keyId } }: TargetCall,
): Promise<KeyRecord> {
  const key = await keys.get(ownerId, keyId);
  if (key === null) throw refused("not_found");
  return key;
}

function answer({ deps: { now } }: KeyCall, key: KeyRecord): Answer {
  const nowMs = now();
  return { json: toJson(key, nowMs), text: describeKey(key, nowMs) };
}

/** The owner that was named, or the first one. */
async function findOwner(
  { deps: { owners }, options }: KeyCall,
): Promise<string> {
  const email = emailFrom(options);
  if (email === null) return await owners.first();
  const ownerId = await owners.find(email);
  if (ownerId === null) throw noOwner(email);
  return ownerId;
}

/** The owner of a new key. A new address is pointed out, since it may be misspelt. */
async function ensureOwner(
  { deps: { owners }, options }: KeyCall,
): Promise<{ ownerId: string; note: string }> {
  const email = emailFrom(options);
  if (email === null) return { ownerId: await owners.first(), note: "" };
  const known = await owners.find(email);
  if (known !== null) return { ownerId: known, note: "" };
  const invite = `To let them sign in: owners invite ${email}`;
  return {
    ownerId: await owners.ensure(email),
    note: `\n\nThe owner ${email} is new. ${invite}`,
  };
}

function emailFrom({ owner }: Options): string | null {
  if (owner === undefined) return null;
  const email = parseEmail(owner);
  if (email === null) throw new UsageError("--owner: Not an e-mail address");
  return email;
}

/** The settings of a key, with those of `before` for what is not given. */
function settingsFrom(
  options: Options,
  nowMs: number,
  before: Pick<KeyRecord, keyof KeySettings>,
): KeySettings {
  const { description, scopes, models, expires } = options;
  return check(settingsSchema, {
    description: description ?? before.description,
    scopes: listOf(scopes) ?? before.scopes,
    models: listOf(models) ?? before.models,
    limits: limitsFrom(options, before.limits),
    expiresAtMs: expires === undefined
      ? before.expiresAtMs
      : expiryFrom(expires, nowMs),
  });
}

function expiryFrom(text: string, nowMs: number): number | null {
  if (text === "never") return null;
  const atMs = Date.parse(text);
  if (Number.isNaN(atMs)) {
    throw new UsageError(
      "--expires: A time such as 2027-01-31T12:00:00Z, or never",
    );
  }
  if (atMs <= nowMs) throw new UsageError("--expires: The time is in the past");
  return atMs;
}

function listOf(text: string | undefined): string[] | undefined {
  return text?.split(",").map((item) => item.trim())
    .filter((item) => item !== "");
}

const REFUSALS: Record<KeyRefusal, string> = {
  not_found:
    `There is no such key: "keys list" shows the keys of an owner, --owner names another owner`,
  changed: "The key was changed by somebody else: look at it and try again",
  too_many: "The owner has the maximum number of keys",
  already_made: "This key was made already",
  not_rotatable:
    "Only an enabled key that has not expired can be rotated: enable it first or make a new one",
};

const refused = (reason: KeyRefusal) => new CommandRefused(REFUSALS[reason]);

/** Throws when the store refused. */
function done<T extends { ok: true }>(
  result: T | { ok: false; reason: KeyRefusal },
): T {
  if (!result.ok) throw refused(result.reason);
  return result;
}

import type { Limits } from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/clock";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type KeyFilter, PAGE_ROWS } from "../keys/key_page.ts";
import type { Changed, KeyStore, Refusal, Target } from "../key_store.ts";
import type { SendStop } from "../notice.ts";
import type { OwnerDirectory } from "../owners/directory.ts";
import { parseEmail } from "../owners/email.ts";
import {
  type Answer,
  COMMAND_LINE,
  CommandRefused,
  noOwner,
} from "./answer.ts";
import {
  allowOptions,
  type CommandLine,
  editedSettings,
  graceFrom,
  numberFrom,
  SETTING_OPTIONS,
  settingsFrom,
  UsageError,
} from "./arguments.ts";
import { describeKey, tableOf, toJson } from "./key_text.ts";

/** What `keys …` works with. */
export interface CommandDeps {
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
  keys rotate ID [--old now|1h|24h|7d]    how long the old key lives on (24h)

Limits, 0 for none, KEY_… of the environment where not given:
                    --rpm N  --tpm N  --tokens-per-day N  --concurrency N
Rights: --scopes chat,models,image,video,speech  --models a,b  --expires TIME|never
--owner EMAIL   whose keys; without it those of the first owner.
                "create" makes an owner of an address that is new
--stop-running  also ends the requests that are running now
--json          prints one object

The keys are those of the cluster that "deno task up" runs, or of REDIS_URL.`;

const REFUSALS: Record<Refusal, string> = {
  not_found:
    `There is no such key: "keys list" shows those there are, --owner those of another owner`,
  changed: "The key was changed meanwhile: look at it and try again",
  too_many: "The owner has as many keys as there may be",
  already_made: "This was made already",
  not_rotatable:
    "Only an enabled key that has not expired can be rotated: enable it first or make a new one",
};

/** Runs `keys …`. Throws {@link UsageError} and {@link CommandRefused}. */
export async function runKeysCommand(
  deps: CommandDeps,
  line: CommandLine,
): Promise<Answer> {
  const [command = "", keyId, ...more] = line.words;
  if (more.length > 0) throw new UsageError(`What is "${more[0]}" for?`);
  const run = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined;
  if (run === undefined) {
    throw new UsageError(
      command === "" ? "Which command?" : `There is no command "${command}"`,
    );
  }
  return await run(deps, line, keyId);
}

type Run = (
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
) => Promise<Answer>;

const COMMANDS: Readonly<Record<string, Run>> = {
  create,
  list,
  show,
  edit,
  disable: (deps, line, keyId) => switchOff(deps, line, keyId, "disable"),
  enable,
  delete: (deps, line, keyId) => switchOff(deps, line, keyId, "delete"),
  rotate,
};

async function create(
  deps: CommandDeps,
  line: CommandLine,
  surplus: string | undefined,
): Promise<Answer> {
  allowOptions(line, [...SETTING_OPTIONS, "owner"]);
  if (surplus !== undefined) {
    throw new UsageError(`What is "${surplus}" for? Quote the description`);
  }
  const settings = settingsFrom(line, deps.now(), deps.defaultLimits);
  const { ownerId, note } = await ensureOwner(deps, line);
  const made = await deps.keys.create({
    ownerId,
    settings,
    actor: COMMAND_LINE,
  });
  if (!made.ok) throw refused(made.reason);
  return {
    json: { ...toJson(made.key, deps.now()), key: made.value },
    text: `Created ${made.key.id}\n\n    ${made.value}\n\n` +
      `Store it now: it is not shown again.${note}`,
  };
}

async function list(
  deps: CommandDeps,
  line: CommandLine,
  surplus: string | undefined,
): Promise<Answer> {
  allowOptions(line, ["owner", "search", "state", "rows", "after"]);
  if (surplus !== undefined) throw new UsageError(`What is "${surplus}" for?`);
  const cursor = line.text("after");
  const ownerId = await findOwner(deps, line);
  const page = await deps.keys.list(ownerId, {
    filter: filterFrom(line.text("state")),
    search: line.text("search") ?? "",
    start: cursor === undefined ? { at: "first" } : { at: "after", cursor },
    rows: numberFrom(line, "rows", { min: 1, max: 200, otherwise: PAGE_ROWS }),
    day: usageDay(deps.now()),
  });
  const more = page.next === null ? "" : `\n\nMore: --after "${page.next}"`;
  return {
    json: {
      keys: page.rows.map((row) => ({
        ...toJson(row.key, deps.now()),
        last_used_at: row.lastUsedAtMs === null
          ? null
          : new Date(row.lastUsedAtMs).toISOString(),
        requests_today: row.requestsToday,
        tokens_today: row.tokensToday,
      })),
      total: page.total,
      next: page.next,
    },
    text: page.rows.length === 0 && page.next === null
      ? nothingListed(line)
      : tableOf(page.rows, deps.now()) + more,
  };
}

function nothingListed(line: CommandLine): string {
  return line.given.includes("search") || line.given.includes("state")
    ? "No key is like that. Words are found by their beginning."
    : `No keys yet. Make one: keys create --description "My first key"`;
}

async function show(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Answer> {
  allowOptions(line, ["owner"]);
  const target = await targetOf(deps, line, keyId);
  const key = await deps.keys.get(target.ownerId, target.keyId);
  if (key === null) throw refused("not_found");
  return {
    json: toJson(key, deps.now()),
    text: describeKey(key, deps.now()),
  };
}

async function edit(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Answer> {
  allowOptions(line, [...SETTING_OPTIONS, "owner"]);
  if (!line.given.some((name) => SETTING_OPTIONS.includes(name))) {
    throw new UsageError("Say what to change, for example --description TEXT");
  }
  const target = await targetOf(deps, line, keyId);
  const key = await deps.keys.get(target.ownerId, target.keyId);
  if (key === null) throw refused("not_found");
  const { description, scopes, models, limits, expiresAtMs } = key;
  const settings = editedSettings(line, {
    description,
    scopes: [...scopes],
    models: [...models],
    limits,
    expiresAtMs,
  }, deps.now());
  const version = key.version;
  return answer(deps, await deps.keys.edit({ ...target, version }, settings));
}

async function enable(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Answer> {
  allowOptions(line, ["owner"]);
  const target = await targetOf(deps, line, keyId);
  return answer(deps, await deps.keys.enable(target));
}

async function switchOff(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
  how: "disable" | "delete",
): Promise<Answer> {
  allowOptions(line, ["owner", "stop-running"]);
  const target = await targetOf(deps, line, keyId);
  const result = await deps.keys[how](target);
  if (!result.ok) throw refused(result.reason);
  const state = how === "delete" ? "deleted" : "disabled";
  if (line.has("stop-running")) await stopRunning(deps, target, state);
  return {
    json: { ...toJson(result.key, deps.now()), state },
    text: `${target.keyId} is ${state}.`,
  };
}

async function stopRunning(
  { sendStop }: CommandDeps,
  { keyId, ownerId }: Target,
  state: string,
): Promise<void> {
  try {
    await sendStop({ keyId, ownerId });
  } catch (cause) {
    throw new CommandRefused(
      `${keyId} is ${state}, but its running requests could not be stopped: no answer from NATS`,
      { cause },
    );
  }
}

async function rotate(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Answer> {
  allowOptions(line, ["owner", "old"]);
  const graceMs = graceFrom(line);
  const target = await targetOf(deps, line, keyId);
  const made = await deps.keys.rotate(target, graceMs);
  if (!made.ok) throw refused(made.reason);
  return {
    json: {
      ...toJson(made.key, deps.now()),
      key: made.value,
      replaces: target.keyId,
    },
    text: `Created ${made.key.id}, which replaces ${target.keyId}\n\n` +
      `    ${made.value}\n\nStore it now: it is not shown again. ` +
      (graceMs === 0
        ? "The old key no longer works."
        : `The old key works for ${line.text("old") ?? "24h"} more.`),
  };
}

function answer(deps: CommandDeps, result: Changed): Answer {
  if (!result.ok) throw refused(result.reason);
  return {
    json: toJson(result.key, deps.now()),
    text: describeKey(result.key, deps.now()),
  };
}

function refused(reason: Refusal): CommandRefused {
  return new CommandRefused(REFUSALS[reason]);
}

async function targetOf(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Target> {
  if (keyId === undefined) throw new UsageError("Which key? Give its id");
  const ownerId = await findOwner(deps, line);
  return { ownerId, keyId, version: null, actor: COMMAND_LINE };
}

async function findOwner(
  { owners }: CommandDeps,
  line: CommandLine,
): Promise<string> {
  const email = emailFrom(line);
  if (email === null) return await owners.first();
  const ownerId = await owners.find(email);
  if (ownerId === null) throw noOwner(email);
  return ownerId;
}

/** The owner of a new key. An address that is new is pointed out: it may be misspelt. */
async function ensureOwner(
  { owners }: CommandDeps,
  line: CommandLine,
): Promise<{ ownerId: string; note: string }> {
  const email = emailFrom(line);
  if (email === null) return { ownerId: await owners.first(), note: "" };
  const known = await owners.find(email);
  if (known !== null) return { ownerId: known, note: "" };
  return {
    ownerId: await owners.ensure(email),
    note:
      `\n\nThe owner ${email} is new. So that he can sign in: owners invite ${email}`,
  };
}

function emailFrom(line: CommandLine): string | null {
  const text = line.text("owner");
  if (text === undefined) return null;
  const email = parseEmail(text);
  if (email === null) throw new UsageError("--owner is an e-mail address");
  return email;
}

function filterFrom(text: string | undefined): KeyFilter {
  switch (text) {
    case undefined:
      return "all";
    case "all":
    case "enabled":
    case "disabled":
    case "with_expiry":
      return text;
    default:
      throw new UsageError(
        "--state is one of all, enabled, disabled, with_expiry",
      );
  }
}

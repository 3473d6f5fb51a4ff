import type { Limits } from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/process/clock";
import type {
  ChangeKeyResult,
  KeyRefusal,
  KeyStore,
  Target,
} from "../domain/keys/key_store.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import type { OwnerDirectory } from "../domain/owners/directory.ts";
import { type Answer, COMMAND_LINE, CommandRefused } from "./answer.ts";
import {
  allowOptions,
  type CommandLine,
  graceFrom,
  UsageError,
} from "./arguments.ts";
import { ensureOwner, targetOf } from "./key_target.ts";
import { describeKey, toJson } from "./key_text.ts";
import {
  editedSettings,
  SETTING_OPTIONS,
  settingsFrom,
} from "./setting_options.ts";

/** What `keys …` works with. */
export interface CommandDeps {
  keys: KeyStore;
  owners: OwnerDirectory;
  sendStop: SendStop;
  /** Of a new key. */
  defaultLimits: Limits;
  now: WallNow;
}

/** `keys create`: the only command, with `rotate`, that prints a full value. */
export async function create(
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

/** `keys edit`: replaces what was given. */
export async function edit(
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

/** `keys enable`. */
export async function enable(
  deps: CommandDeps,
  line: CommandLine,
  keyId: string | undefined,
): Promise<Answer> {
  allowOptions(line, ["owner"]);
  const target = await targetOf(deps, line, keyId);
  return answer(deps, await deps.keys.enable(target));
}

/** `keys disable` and `keys delete`. */
export async function switchOff(
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

/** `keys rotate`. */
export async function rotate(
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

function answer(deps: CommandDeps, result: ChangeKeyResult): Answer {
  if (!result.ok) throw refused(result.reason);
  return {
    json: toJson(result.key, deps.now()),
    text: describeKey(result.key, deps.now()),
  };
}

const REFUSALS: Record<KeyRefusal, string> = {
  not_found:
    `There is no such key: "keys list" shows those there are, --owner those of another owner`,
  changed: "The key was changed meanwhile: look at it and try again",
  too_many: "The owner has as many keys as there may be",
  already_made: "This was made already",
  not_rotatable:
    "Only an enabled key that has not expired can be rotated: enable it first or make a new one",
};

/** A refusal of the store in words. */
export function refused(reason: KeyRefusal): CommandRefused {
  return new CommandRefused(REFUSALS[reason]);
}

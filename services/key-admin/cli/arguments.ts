import { parseArgs } from "node:util";
import { KEY_SCOPES, type Limits } from "@gateway/shared/keys/record";
import { ROTATION_GRACES_MS } from "../keys/key_changes.ts";
import type { z } from "zod";
import {
  type KeySettings,
  limitsSchema,
  settingsSchema,
} from "../keys/settings.ts";

/** What the command line asks for was not understood. The message says what to do. */
export class UsageError extends Error {
  override name = "UsageError";
}

const OPTIONS = {
  description: { type: "string" },
  rpm: { type: "string" },
  tpm: { type: "string" },
  "tokens-per-day": { type: "string" },
  concurrency: { type: "string" },
  expires: { type: "string" },
  models: { type: "string" },
  scopes: { type: "string" },
  owner: { type: "string" },
  search: { type: "string" },
  state: { type: "string" },
  rows: { type: "string" },
  after: { type: "string" },
  old: { type: "string" },
  "stop-running": { type: "boolean" },
  json: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

/** At most 15 digits: a double holds them all. */
const WHOLE_NUMBER = /^\d{1,15}$/;

/** Every option of every command. */
export type OptionName = keyof typeof OPTIONS;
type TextOption = Exclude<OptionName, "stop-running" | "json" | "help">;

/** A command line, split. Options that a command does not know were refused. */
export interface CommandLine {
  words: string[];
  text(name: TextOption): string | undefined;
  has(name: "stop-running" | "json" | "help"): boolean;
  given: OptionName[];
}

/** Splits a command line. Throws {@link UsageError} for an unknown option. */
export function parseCommandLine(args: string[]): CommandLine {
  const parsed = parseOrExplain(args);
  return {
    words: parsed.positionals,
    text: (name) => parsed.values[name],
    has: (name) => parsed.values[name] === true,
    given: namesOf(parsed.values),
  };
}

function parseOrExplain(args: string[]) {
  try {
    return parseArgs({ args, options: OPTIONS, allowPositionals: true });
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    // After the option's name comes how to pass one that is no option.
    const [unknown] = /^Unknown option '[^']*'/.exec(said) ?? [];
    throw new UsageError(unknown ?? said, { cause: error });
  }
}

function namesOf(values: object): OptionName[] {
  return Object.keys(values).filter((name): name is OptionName =>
    name in OPTIONS
  );
}

/** Refuses options that a command has no use for, rather than to ignore a wish. */
export function allowOptions(
  line: CommandLine,
  allowed: readonly OptionName[],
): void {
  const unknown = line.given.find((name) =>
    !allowed.includes(name) && name !== "json" && name !== "help"
  );
  if (unknown !== undefined) {
    throw new UsageError(`--${unknown} does not go with this command`);
  }
}

/** Options that are limits, of a key or of an owner. */
export const LIMIT_OPTIONS: readonly OptionName[] = [
  "rpm",
  "tpm",
  "tokens-per-day",
  "concurrency",
];

/** Options that describe a key. */
export const SETTING_OPTIONS: readonly OptionName[] = [
  "description",
  ...LIMIT_OPTIONS,
  "expires",
  "models",
  "scopes",
];

/** The settings of a new key, with `defaults` for limits that are not given. */
export function settingsFrom(
  line: CommandLine,
  nowMs: number,
  defaults: Limits,
): KeySettings {
  return checkSettings({
    description: line.text("description") ?? "",
    scopes: listOf(line.text("scopes")) ?? [...KEY_SCOPES],
    models: listOf(line.text("models")) ?? [],
    limits: { ...defaults, ...limitsFrom(line) },
    expiresAtMs: expiryFrom(line, nowMs) ?? null,
  });
}

/** The settings of an existing key with those replaced that are given. */
export function editedSettings(
  line: CommandLine,
  before: KeySettings,
  nowMs: number,
): KeySettings {
  const expiresAtMs = expiryFrom(line, nowMs);
  return checkSettings({
    description: line.text("description") ?? before.description,
    scopes: listOf(line.text("scopes")) ?? before.scopes,
    models: listOf(line.text("models")) ?? before.models,
    limits: { ...before.limits, ...limitsFrom(line) },
    expiresAtMs: expiresAtMs === undefined ? before.expiresAtMs : expiresAtMs,
  });
}

/** How long the old key lives on after `rotate --old`. */
export function graceFrom(line: CommandLine): number {
  const name = line.text("old") ?? "24h";
  const graceMs = Object.hasOwn(ROTATION_GRACES_MS, name)
    ? ROTATION_GRACES_MS[name]
    : undefined;
  if (graceMs !== undefined) return graceMs;
  const names = Object.keys(ROTATION_GRACES_MS).join(", ");
  throw new UsageError(`--old is one of ${names}`);
}

/** A whole number between bounds. */
export function numberFrom(
  line: CommandLine,
  name: TextOption,
  { min, max, otherwise }: { min: number; max: number; otherwise: number },
): number {
  const text = line.text(name);
  if (text === undefined) return otherwise;
  const value = WHOLE_NUMBER.test(text) ? Number(text) : NaN;
  if (!(value >= min && value <= max)) {
    throw new UsageError(`--${name} is a whole number from ${min} to ${max}`);
  }
  return value;
}

/** The limits that were given. */
export function limitsFrom(line: CommandLine): Partial<KeySettings["limits"]> {
  const number = (name: TextOption) => {
    const text = line.text(name);
    return text === undefined ? undefined : limitFrom(name, text);
  };
  const limits = {
    requestsPerMinute: number("rpm"),
    tokensPerMinute: number("tpm"),
    tokensPerDay: number("tokens-per-day"),
    concurrency: number("concurrency"),
  };
  return Object.fromEntries(
    Object.entries(limits).filter(([, value]) => value !== undefined),
  );
}

function limitFrom(name: TextOption, text: string): number {
  if (WHOLE_NUMBER.test(text)) return Number(text);
  throw new UsageError(`--${name} is a whole number, 0 for no limit`);
}

/** Undefined: not given. Null: `never`. */
function expiryFrom(
  line: CommandLine,
  nowMs: number,
): number | null | undefined {
  const text = line.text("expires");
  if (text === undefined) return undefined;
  if (text === "never") return null;
  const atMs = Date.parse(text);
  if (Number.isNaN(atMs)) {
    throw new UsageError(
      `--expires is a time such as 2027-01-31T12:00:00Z, or never`,
    );
  }
  if (atMs <= nowMs) throw new UsageError("--expires lies in the past");
  return atMs;
}

function listOf(text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  return text.split(",").map((item) => item.trim())
    .filter((item) => item !== "");
}

function checkSettings(
  wanted: Record<keyof KeySettings, unknown>,
): KeySettings {
  const checked = settingsSchema.safeParse(wanted);
  if (checked.success) return checked.data;
  throw mistakes(checked.error);
}

/** Checks limits that are complete. */
export function checkLimits(wanted: Limits): Limits {
  const checked = limitsSchema.safeParse(wanted);
  if (checked.success) return checked.data;
  throw mistakes(checked.error);
}

const OPTION_OF: Readonly<Record<string, OptionName>> = {
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tokens-per-day",
  concurrency: "concurrency",
  expiresAtMs: "expires",
};

/** One line per mistake, such as `--concurrency: At most 1,000,000`. */
function mistakes(error: z.ZodError): UsageError {
  const lines = error.issues.map(({ path, message }) => {
    const [first = "", second] = path.map(String);
    const name = first === "limits" ? second ?? "" : first;
    return `--${OPTION_OF[name] ?? name}: ${message}`;
  });
  return new UsageError([...new Set(lines)].join("\n"));
}

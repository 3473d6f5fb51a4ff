import { parseArgs } from "node:util";
import { ROTATION_GRACES_MS } from "../domain/keys/key_store.ts";

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
export const WHOLE_NUMBER: RegExp = /^\d{1,15}$/;

/** Every option of every command. */
export type OptionName = keyof typeof OPTIONS;

/** Options with a value. */
export type TextOption = Exclude<OptionName, "stop-running" | "json" | "help">;

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

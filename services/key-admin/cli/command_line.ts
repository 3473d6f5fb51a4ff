import { parseArgs } from "node:util";
import type { Limits } from "@gateway/shared/keys/record";
import type { z } from "zod";
import { limitsOf } from "../domain/keys/settings.ts";

/** The command line was not understood. The message says what to do. */
export class UsageError extends Error {
  override name = "UsageError";
}

/** The command was understood and cannot be done. */
export class CommandRefused extends Error {
  override name = "CommandRefused";
}

/** Nobody has this address. */
export const noOwner = (email: string): CommandRefused =>
  new CommandRefused(
    `There is no owner ${email}: "owners list" shows all owners`,
  );

/** What a command prints: an object with `--json`, else text. */
export interface Answer {
  json: object;
  text: string;
}

/** Who acts on the command line, for the audit log. */
export const COMMAND_LINE = { by: "command line", ip: "" } as const;

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

/** The name of an option of any command. */
export type OptionName = keyof typeof OPTIONS;

/** The options that were given, with their values. */
export type Options = CommandLine["options"];

/** A command line, split into words and options. */
export type CommandLine = ReturnType<typeof parseCommandLine>;

/** Splits a command line. Throws {@link UsageError} for an unknown option. */
export function parseCommandLine(args: string[]) {
  try {
    const { positionals, values } = parseArgs({
      args,
      options: OPTIONS,
      allowPositionals: true,
    });
    return { words: positionals, options: values };
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    // After the option's name comes how to pass a word that begins with a dash.
    const [unknown] = /^Unknown option '[^']*'/.exec(said) ?? [];
    throw new UsageError(unknown ?? said, { cause: error });
  }
}

/** What a command works on. */
export interface Call<Deps> {
  deps: Deps;
  options: Options;
  /** The word after the command's name; empty when it takes none. */
  word: string;
}

/** One command. */
export interface Command<Deps> {
  options: readonly OptionName[];
  /** What to say when its word is missing; without it the command takes none. */
  missing?: string;
  run(call: Call<Deps>): Promise<Answer>;
}

/** Runs the command that the first word names. Throws {@link UsageError} and {@link CommandRefused}. */
export async function runCommand<Deps>(
  commands: Readonly<Record<string, Command<Deps>>>,
  deps: Deps,
  { words: [name = "", ...words], options }: CommandLine,
): Promise<Answer> {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) {
    throw new UsageError(
      name === "" ? "Which command?" : `There is no command "${name}"`,
    );
  }
  const allowed = ["json", "help", ...command.options];
  const surplus = Object.keys(options).find((one) => !allowed.includes(one));
  if (surplus !== undefined) {
    throw new UsageError(`"${name}" has no option --${surplus}`);
  }
  const [extra] = command.missing === undefined ? words : words.slice(1);
  if (extra !== undefined) {
    throw new UsageError(`Unexpected "${extra}": quote values with spaces`);
  }
  const [word = ""] = words;
  if (word === "" && command.missing !== undefined) {
    throw new UsageError(command.missing);
  }
  return await command.run({ deps, options, word });
}

/** A whole number, or NaN. At most 15 digits: a double holds them all. */
export const wholeNumber = (text: string): number =>
  /^\d{1,15}$/.test(text) ? Number(text) : NaN;

const LIMIT_OPTION = {
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tokens-per-day",
  concurrency: "concurrency",
} as const;

/** The options that are limits, of a key or of an owner. */
export const LIMIT_OPTIONS = Object.values(LIMIT_OPTION);

/** `before` with the limits that were given; not yet checked. */
export function limitsFrom(options: Options, before: Limits): Limits {
  return limitsOf((name) => {
    const text = options[LIMIT_OPTION[name]];
    return text === undefined ? before[name] : wholeNumber(text);
  });
}

const OPTION_OF: Readonly<Record<string, OptionName>> = {
  ...LIMIT_OPTION,
  expiresAtMs: "expires",
};

/** Parses what was given. Throws with one line per mistake, such as `--concurrency: At most 1,000,000`. */
export function check<T>(schema: z.ZodType<T>, wanted: unknown): T {
  const checked = schema.safeParse(wanted);
  if (checked.success) return checked.data;
  const lines = checked.error.issues.map(({ path, message }) => {
    const [name = ""] = path.map(String).filter((part) => part !== "limits");
    return `--${OPTION_OF[name] ?? name}: ${message}`;
  });
  throw new UsageError([...new Set(lines)].join("\n"));
}

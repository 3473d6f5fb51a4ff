import { parseArgs } from "node:util";
import type { WallNow } from "@gateway/shared/process/clock";
import type { Limits } from "@gateway/shared/keys/record";
import { EXIT_CONFIG } from "@gateway/shared/process/env";
import { z } from "zod";
import { PAGE_ROWS, PAGE_ROWS_MAX } from "../domain/keys/key_page.ts";
import { ROTATION_GRACES_MS } from "../domain/keys/key_store.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import {
  limitsOf,
  limitsSchema,
  settingsSchema,
} from "../domain/keys/settings.ts";
import { parseEmail } from "../domain/owners/directory.ts";
import type { Stores } from "../domain/stores.ts";
import type { Answer } from "./answer.ts";

/** The command line is invalid. The message says how to correct it. */
export class UsageError extends Error {
  override name = "UsageError";
}

/** The command is valid but cannot be carried out. */
export class CommandRefused extends Error {
  override name = "CommandRefused";
}

/** Dependencies of commands. */
export interface CommandDeps extends Stores {
  sendStop: SendStop;
  /** The limits of a new key. */
  defaultLimits: Limits;
  /** Origin of the console, for links. */
  consoleUrl: string;
  now: WallNow;
}

/** One invocation of a command. */
export interface Call {
  deps: CommandDeps;
  options: Options;
  /** The id or the address after the command's name; empty when it takes none. */
  word: string;
}

/** One command. */
export interface Command {
  help: string;
  /** The argument after its name. */
  takes?: keyof typeof MISSING;
  options: readonly OptionName[];
  run(call: Call): Promise<Answer>;
}

/** A group of commands: `keys` or `owners`. */
export interface Area {
  title: string;
  commands: Readonly<Record<string, Command>>;
  /** The end of its help. */
  notes: string;
}

/** The actor of every command, for the audit log. */
export const COMMAND_LINE = { by: "command line", ip: "" } as const;

const MISSING = {
  ID: "Give the id of the key",
  EMAIL: "Give the owner's e-mail address",
} as const;

const number = z.string().transform((text) =>
  // A double holds 15 digits exactly.
  /^-?\d{1,15}$/.test(text) ? Number(text) : NaN
);
const list = z.string().transform((text) =>
  text.split(",").map((item) => item.trim()).filter((item) => item !== "")
);
const timeMs = z.string().transform((text) =>
  text === "never" ? null : Date.parse(text)
).refine(
  (ms) => !Number.isNaN(ms),
  "A time such as 2027-01-31T12:00:00Z, or never",
);
const email = z.string().transform(parseEmail)
  .pipe(z.string("Not an e-mail address"));
const graces = Object.keys(ROTATION_GRACES_MS);
const { shape: settings } = settingsSchema;
const { shape: limits } = limitsSchema;

/** Every option: how it is checked, what it takes (`title`), and its help. */
const OPTIONS = {
  owner: email.meta({
    title: "EMAIL",
    description: "owner of the keys, by default the first owner",
  }),
  description: settings.description
    .meta({ title: "TEXT", description: "what the key is for" }),
  rpm: number.pipe(limits.requestsPerMinute)
    .meta({ title: "N", description: "requests per minute, 0 for no limit" }),
  tpm: number.pipe(limits.tokensPerMinute)
    .meta({ title: "N", description: "tokens per minute" }),
  "tokens-per-day": number.pipe(limits.tokensPerDay)
    .meta({ title: "N", description: "tokens per UTC day" }),
  concurrency: number.pipe(limits.concurrency)
    .meta({ title: "N", description: "requests at the same time" }),
  expires: timeMs.meta({
    title: "TIME|never",
    description: "expiry, such as 2027-01-31T12:00:00Z",
  }),
  models: list.pipe(settings.models)
    .meta({
      title: "A,B",
      description: 'models that the key may use, "" for all',
    }),
  scopes: list.pipe(settings.scopes)
    .meta({ title: "A,B", description: "chat, models, image, video, speech" }),
  search: z.string()
    .meta({
      title: "WORDS",
      description: "words in the description, or the last 4 characters",
    }),
  state: z.enum(
    ["all", "enabled", "disabled", "with_expiry"],
    "One of all, enabled, disabled, with_expiry",
  ).meta({ title: "STATE", description: "enabled, disabled or with_expiry" }),
  rows: number.refine(
    (rows) => rows >= 1 && rows <= PAGE_ROWS_MAX,
    `A whole number from 1 to ${PAGE_ROWS_MAX}`,
  ).meta({ title: "N", description: `keys on a page (${PAGE_ROWS})` }),
  after: z.string()
    .meta({
      title: "CURSOR",
      description: "continue at the cursor that list printed",
    }),
  old: z.enum(graces, `One of ${graces.join(", ")}`).meta({
    title: graces.join("|"),
    description: "how long the old key keeps working (24h)",
  }),
  "stop-running": z.boolean()
    .meta({ description: "also stop requests that are running now" }),
  json: z.boolean().meta({ description: "print one JSON object" }),
};
const optionsSchema = z.object(OPTIONS).partial();

/** The name of an option of any command. */
export type OptionName = keyof typeof OPTIONS;

/** The options that were given, with their checked values. */
export type Options = z.output<typeof optionsSchema>;

const OPTION_OF_LIMIT = {
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tokens-per-day",
  concurrency: "concurrency",
} as const;

/** The options that are limits, of a key or of an owner. */
export const LIMIT_OPTIONS = Object.values(OPTION_OF_LIMIT);

/** The limits that were given; the others as in `before`. */
export const limitsFrom = (options: Options, before: Limits): Limits =>
  limitsOf((name) => options[OPTION_OF_LIMIT[name]] ?? before[name]);

/** The error for an address that no owner has. */
export const noOwner = (email: string): CommandRefused =>
  new CommandRefused(
    `There is no owner ${email}: "owners list" shows all owners`,
  );

/** Reads the words after `keys` or `owners`. Throws {@link UsageError}; running it throws {@link CommandRefused} as well. */
export function parseCommand({ commands }: Area, args: readonly string[]) {
  const { positionals: [name = "", ...words], values } = split(args);
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) {
    throw new UsageError(
      name === "" ? "Give a command" : `There is no command "${name}"`,
    );
  }
  const allowed: readonly string[] = ["json", ...command.options];
  const surplus = Object.keys(values).find((one) => !allowed.includes(one));
  if (surplus !== undefined) {
    throw new UsageError(`"${name}" has no option --${surplus}`);
  }
  const [extra] = command.takes === undefined ? words : words.slice(1);
  if (extra !== undefined) {
    throw new UsageError(
      `Unexpected "${extra}": quote values that contain spaces`,
    );
  }
  const [given = ""] = words;
  const word = command.takes === "EMAIL" ? parseEmail(given) : given;
  if (command.takes && !word) throw new UsageError(MISSING[command.takes]);
  const checked = optionsSchema.safeParse(values);
  if (!checked.success) {
    const mistakes = checked.error.issues
      .map(({ path, message }) => `--${String(path[0])}: ${message}`);
    throw new UsageError([...new Set(mistakes)].join("\n"));
  }
  const options = checked.data;
  return {
    isJson: options.json === true,
    run: (deps: CommandDeps) =>
      command.run({ deps, options, word: word ?? "" }),
  };
}

function split(args: readonly string[]) {
  const options = Object.entries(OPTIONS).map(([name, schema]) => {
    const type = schema instanceof z.ZodBoolean ? "boolean" : "string";
    return [name, { type }] as const;
  });
  // parseArgs would take the -1 of `--rpm -1` for an option.
  const joined: string[] = [];
  for (const arg of args) {
    const before = joined.at(-1);
    if (/^-\d/.test(arg) && before?.startsWith("--")) {
      joined.splice(-1, 1, `${before}=${arg}`);
    } else joined.push(arg);
  }
  try {
    return parseArgs({
      args: joined,
      options: Object.fromEntries(options),
      allowPositionals: true,
    });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    // The rest explains how to pass a word that begins with a dash.
    const [unknown] = /^Unknown option '[^']*'/.exec(message) ?? [];
    throw new UsageError(unknown ?? message, { cause: error });
  }
}

/** 69 and 77 are from sysexits.h. */
export const EXIT_CODES_HELP =
  `Exit codes: 0 done, 1 refused, 2 invalid command line,
69 no answer from Redis, or a change not confirmed to be on disk,
77 the Redis user lacks a permission, ${EXIT_CONFIG} a mistake in the environment.`;

/** The text of `--help`. */
export function helpOf({ title, commands, notes }: Area): string {
  const all = Object.entries(commands);
  const optionLines = Object.entries(OPTIONS).flatMap(([option, schema]) => {
    const { title = "", description = "" } = schema.meta() ?? {};
    const users = all.filter(([, { options }]) =>
      options.some((one) => one === option)
    ).map(([name]) => name);
    if (users.length === 0 && option !== "json") return [];
    const who = users.length === 0 ? "" : ` (${users.join(", ")})`;
    return [[`--${option} ${title}`, description + who]];
  });
  const commandLines = all.map((
    [name, { takes = "", help }],
  ) => [`${name} ${takes}`, help]);
  const lines = (rows: string[][]) =>
    rows.map(([left = "", right]) => `  ${left.padEnd(22)} ${right}`);
  return [
    ...[title, "", "Commands:", ...lines(commandLines)],
    ...["", "Options:", ...lines(optionLines), "", notes, ""],
    EXIT_CODES_HELP,
  ].join("\n");
}

import type { WallNow } from "@gateway/shared/process/clock";
import type { Limits } from "@gateway/shared/keys/record";
import { EXIT_CONFIG } from "@gateway/shared/process/env";
import { Command as Program, CommanderError } from "commander";
import { z } from "zod";
import { PAGE_ROWS, PAGE_ROWS_MAX } from "../domain/keys/key_page.ts";
import { ROTATION_GRACES_MS } from "../domain/keys/key_store.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import {
  type DefaultLimits,
  limitsOf,
  limitWords,
  settingsSchema,
} from "../domain/keys/settings.ts";
import { parseEmail } from "../domain/owners/owner_store.ts";
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
  defaultLimits: DefaultLimits;
  /** Origin of the console, for links. */
  publicUrl: URL;
  now: WallNow;
}

/** One invocation of a command. */
export interface Call extends CommandDeps {
  options: Options;
  /** The id or the address after the command's name; empty when it takes none. */
  word: string;
}

/** One command: its name with the argument that it takes, its help, and its options besides `--json`. */
export type Command = readonly [
  usage: string,
  help: string,
  run: (call: Call) => Promise<Answer>,
  options?: readonly OptionName[],
];

/** A group of commands: `keys` or `owners`. */
export interface Area {
  title: string;
  commands: readonly Command[];
  /** The end of its help. */
  notes: string;
}

/** The actor of every command, for the audit log. */
export const COMMAND_LINE = { by: "command line", ip: "" } as const;

const number = z.string().transform((text) =>
  // A double holds 15 digits exactly.
  /^-?\d{1,15}$/.test(text) ? Number(text) : NaN
);
const list = z.string().transform((text) =>
  text.split(",").map((item) => item.trim()).filter((item) => item !== "")
);
const time = z.string().transform((text) =>
  text === "never" ? null : Date.parse(text)
).refine(
  (ms) => !Number.isNaN(ms),
  "A time such as 2027-01-31T12:00:00Z, or never",
);
const email = z.string().transform(parseEmail)
  .pipe(z.string("Not an e-mail address"));
const pageRows = number.refine(
  (rows) => rows >= 1 && rows <= PAGE_ROWS_MAX,
  `A whole number from 1 to ${PAGE_ROWS_MAX}`,
);
const oneOf = <T extends string>(values: readonly T[]) =>
  z.enum(values, `One of ${values.join(", ")}`);
const states = ["all", "enabled", "disabled", "with_expiry"] as const;
const graces = Object.keys(ROTATION_GRACES_MS);
const { limits, ...settings } = settingsSchema.shape;
const limit = (name: keyof Limits) => number.pipe(limits.shape[name]);

/** The checks of each option's value. */
const optionsSchema = z.object({
  owner: email,
  description: settings.description,
  rpm: limit("requestsPerMinute"),
  tpm: limit("tokensPerMinute"),
  tokensPerDay: limit("tokensPerDay"),
  concurrency: limit("concurrency"),
  expires: time,
  models: list.pipe(settings.models),
  scopes: list.pipe(settings.scopes),
  search: z.string(),
  state: oneOf(states),
  rows: pageRows,
  after: z.string(),
  old: oneOf(graces),
  stopRunning: z.boolean(),
  json: z.boolean(),
}).partial();

/** The options that were given, with their checked values. */
export type Options = z.output<typeof optionsSchema>;

/** The name of an option of any command. */
export type OptionName = keyof Options;

/** The value of each option as the help shows it, and its help. */
const HELP: Readonly<Record<OptionName, [value: string, help: string]>> = {
  owner: ["<email>", "owner of the keys, by default the first owner"],
  description: ["<text>", "what the key is for"],
  rpm: ["<n>", "requests per minute, 0 for no limit"],
  tpm: ["<n>", "tokens per minute"],
  tokensPerDay: ["<n>", "tokens per UTC day"],
  concurrency: ["<n>", "requests at the same time"],
  expires: ["<time>", "such as 2027-01-31T12:00:00Z, or never"],
  models: ["<a,b>", 'models that the key may use, "" for all'],
  scopes: ["<a,b>", "chat, models, image, video, speech"],
  search: ["<words>", "in the description, or the last 4 characters"],
  state: ["<state>", "enabled, disabled or with_expiry"],
  rows: ["<n>", `keys on a page (${PAGE_ROWS})`],
  after: ["<cursor>", "continue at the cursor that list printed"],
  old: [`<${graces.join("|")}>`, "how long the old key keeps working (24h)"],
  stopRunning: ["", "also stop requests that are running now"],
  json: ["", "print one JSON object"],
};

/** `tokensPerDay` is given as `--tokens-per-day`. */
const flagOf = (name: string): string => `--${limitWords(name, "-")}`;

const OPTION_OF_LIMIT = {
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tokensPerDay",
  concurrency: "concurrency",
} as const;

/** The options that are limits, of a key or of an owner. */
export const LIMIT_OPTIONS = Object.values(OPTION_OF_LIMIT);

/** The limits that were given; the others as in `before`. */
export const limitsFrom = (options: Options, before: Limits): Limits =>
  limitsOf((name) => options[OPTION_OF_LIMIT[name]] ?? before[name]);

/** The owner of an address. Throws {@link CommandRefused} when there is none. */
export async function findOwner({ owners }: Call, email: string) {
  const ownerId = await owners.find(email);
  if (ownerId !== null) return ownerId;
  throw new CommandRefused(
    `There is no owner ${email}: "owners list" shows all owners`,
  );
}

/** 69 and 77 are from sysexits.h. */
export const EXIT_CODES_HELP =
  `Exit codes: 0 done, 1 refused, 2 invalid command line,
69 no answer from Redis, or a change not confirmed to be on disk,
77 the Redis user lacks a permission, ${EXIT_CONFIG} a mistake in the environment.`;

interface ParsedCommand {
  isJson: boolean;
  run(deps: CommandDeps): Promise<Answer>;
}

/** Reads the arguments. Returns the text of a help page if they ask for one; throws {@link UsageError}. */
export function parseCommand(
  areas: Readonly<Record<string, Area>>,
  args: readonly string[],
): ParsedCommand | string {
  let printed = "";
  let parsed: ParsedCommand | undefined;
  const print = (text: string) => void (printed += text);
  const program = new Program("gateway").exitOverride()
    .configureOutput({ writeOut: print, writeErr: print })
    .showHelpAfterError("(--help lists commands and options)")
    .addHelpText("afterAll", `\n${EXIT_CODES_HELP}`);
  for (const [areaName, { title, notes, commands }] of Object.entries(areas)) {
    const area = program.command(areaName).description(title)
      .addHelpText("after", `\n${notes}`);
    for (const [usage, help, run, options = []] of commands) {
      const command = area.command(usage).description(help);
      for (const option of [...options, "json"] as const) {
        const [value, help] = HELP[option];
        command.option(`${flagOf(option)} ${value}`, help);
      }
      command.action(() => {
        const [given = ""] = command.args;
        const word = usage.endsWith("<email>") ? parseEmail(given) : given;
        if (word === null) {
          throw new UsageError(`Not an e-mail address: ${given}`);
        }
        const checked = checkOptions(command.opts());
        parsed = {
          isJson: checked.json === true,
          run: (deps) => run({ ...deps, options: checked, word }),
        };
      });
    }
  }
  try {
    program.parse(args, { from: "user" });
  } catch (cause) {
    if (!(cause instanceof CommanderError)) throw cause;
    if (cause.exitCode === 0) return printed.trimEnd();
    throw new UsageError(printed.trimEnd(), { cause });
  }
  return parsed ?? printed;
}

function checkOptions(values: Record<string, unknown>): Options {
  const { data, error } = optionsSchema.safeParse(values);
  if (data !== undefined) return data;
  const mistakes = error.issues.map(({ path: [name], message }) =>
    `${flagOf(String(name))}: ${message}`
  );
  throw new UsageError([...new Set(mistakes)].join("\n"));
}

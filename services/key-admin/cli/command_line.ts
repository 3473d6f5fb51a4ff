/** How the command line is read, and how answers are printed. */
import { overrideWeight } from "@gateway/shared/backends/overrides";
import { KEY_PRIORITIES, KEY_SCOPES } from "@gateway/shared/keys/record";
import { REQUEST_OUTCOMES } from "@gateway/shared/keys/request_row";
import type { WallNow } from "@gateway/shared/process/clock";
import { EXIT_CONFIG } from "@gateway/shared/process/env";
import { clip } from "@gateway/shared/process/error_text";
import { versionLine } from "@gateway/shared/version";
import { Command as Program, CommanderError } from "commander";
import { z } from "zod";
import {
  KEY_FILTERS,
  PAGE_ROWS,
  PAGE_ROWS_MAX,
} from "../domain/keys/key_page.ts";
import { END_USERS_EXAMPLE } from "../domain/keys/end_users.ts";
import { ADMIN_SCOPES } from "../domain/admin_keys/admin_key_store.ts";
import { GRACES, graceSchema } from "../domain/keys/graces.ts";
import { AdminRefused, type ModelNames } from "../api/route.ts";
import * as settings from "../domain/keys/settings.ts";
import { REASON_CHARS_MAX } from "../domain/audit/audit_log.ts";
import { projectName, ROLES } from "../domain/projects/project_record.ts";
import { parseEmail } from "../domain/owners/email.ts";
import type { Stores } from "../domain/stores.ts";
import type { AdminPort } from "./port.ts";

/** The command line is invalid. The message says how to correct it. */
export class UsageError extends Error {
  override name = "UsageError";
}

/** The command is valid but cannot be carried out. */
export class CommandRefused extends Error {
  override name = "CommandRefused";
}

type Fields = Readonly<Record<string, unknown>>;

/** The output of a command: an object with `--json`, otherwise the same as text. */
export interface Output {
  json: Fields;
  /** The part that the text shows as a table. */
  table?: { rows: readonly Fields[]; columns: readonly string[] };
  note?: string;
}

/** Redis, for the few commands that the admin API cannot do. */
export interface LocalDeps extends Stores {
  publicUrl: URL;
  /** The time zone of the days and months of budgets. */
  budgetZone: string;
  /** Reads a file that an option names. */
  readFile: (path: string) => Promise<string>;
}

/** What commands act on, and where they print. */
export interface CommandDeps {
  /** The admin API, in this process or elsewhere. */
  api: AdminPort;
  /** Null: the admin API is elsewhere. */
  local: LocalDeps | null;
  /** The names of models, as far as they are known here; null: only elsewhere. */
  modelNames: ModelNames | null;
  now: WallNow;
  /** Writes a warning for the operator, besides the answer. */
  warn: (text: string) => void;
  /** Shows an output at once: a command with `--watch` never ends with an answer. */
  show: (output: Output) => void;
  pause: (ms: number) => Promise<void>;
}

/** One run of a command, with its arguments checked. */
export interface Invocation extends CommandDeps {
  options: Options;
  /** The id or the address after the command's name; empty when it takes none. */
  word: string;
}

/** One command of an area. */
export interface Command {
  /** Its name, with the argument that it takes. */
  readonly usage: string;
  readonly help: string;
  readonly run: (invocation: Invocation) => Promise<Output>;
  /** Its options besides those of the area and `--json`. */
  readonly options?: readonly OptionName[];
}

/** The commands on one subject: `keys …`. */
export interface Area {
  title: string;
  /** Options of all of its commands. */
  options?: readonly OptionName[];
  commands: readonly Command[];
  /** The command that runs if none is named. */
  usual?: string;
  notes: string;
}

const { shape: setting } = settings.SETTING_TEXTS;
const { expires, models } = setting;
const text = z.string();
const flag = z.boolean();
const email = text.transform(parseEmail)
  .pipe(z.string("Not an e-mail address, such as ada@example.org"));
const roles = settings.oneOf("Roles are", ROLES);
const rows = text.transform(Number).refine(
  (rows) => Number.isInteger(rows) && rows >= 1 && rows <= PAGE_ROWS_MAX,
  `Must be a whole number from 1 to ${PAGE_ROWS_MAX}`,
);
const scopes = text.transform((text) => text.split(/[\s,]+/))
  .pipe(setting.scopes);
const states = settings.oneOf("One of", KEY_FILTERS);
const graces = Object.keys(GRACES).join("|");

/** An option: its value as the help shows it, its help, and how it is read. */
const option = <T extends z.ZodType>(value: string, help: string, schema: T) =>
  schema.meta({ title: value, description: help });

const OPTIONS = z.object({
  owner: option("<email>", "the owner (of keys: the first owner)", email),
  project: option("<name>", "the project that has the keys, or its id", text),
  name: option("<text>", "what the project is called", projectName),
  admin: option("<email>", "its first admin", email),
  member: option("<email>", "whose membership it is about", email),
  role: option(`<${ROLES.join("|")}>`, "what the member may do", roles),
  description: option("<text>", "what the key is for", setting.description),
  ...settings.limitsOf((name) =>
    option(
      settings.isBudget(name) ? "<amount>" : "<n>",
      settings.LIMITS[name][2],
      setting[name],
    )
  ),
  expires: option("<time>", "a day, a time in ISO 8601, or never", expires),
  models: option("<a,b>", 'models that it may use, "" for all', models),
  scopes: option("<a,b>", KEY_SCOPES.join(", "), scopes),
  adminScopes: option(
    "<a,b>",
    ADMIN_SCOPES.join(", "),
    text.transform((text) => text.split(/[\s,]+/)).pipe(
      z.array(settings.oneOf("Scopes are", ADMIN_SCOPES)).min(1),
    ),
  ),
  allowedCidrs: option(
    "<a,b>",
    'networks that it may be used from, "" for all',
    setting.allowedCidrs,
  ),
  endUsers: option(
    "<text>",
    `limits of each end user, as in "${END_USERS_EXAMPLE}"; "" for none`,
    setting.endUsers,
  ),
  priority: option(
    `<${KEY_PRIORITIES.join("|")}>`,
    "batch: its requests wait behind all others of the account",
    setting.priority,
  ),
  keepSeconds: option(
    "<n>",
    "for how long answers are kept after their end; 0 for not at all",
    setting.keepSeconds,
  ),
  search: option(
    "<words>",
    "words of a description or an address, or a key's last characters",
    text,
  ),
  state: option("<state>", "enabled, disabled, with_expiry or unused", states),
  rows: option("<n>", `rows of a page (${PAGE_ROWS})`, rows),
  sort: option(
    "<order>",
    'such as requests, or "-requests" for the largest first',
    text,
  ),
  after: option("<cursor>", "continue at the cursor that list printed", text),
  old: option(`<${graces}>`, "how long the old key works (24h)", graceSchema),
  force: option("", "accept models that are not configured (yet)", flag),
  stopRunning: option("", "also stop requests that are running now", flag),
  model: option("<id>", "the model (of a server: if several have it)", text),
  from: option("<time>", "from this time on", text),
  until: option("<time>", "before this time", text),
  key: option("<id>", "of this key", text),
  code: option("<code>", "with this code of an error, or reason", text),
  request: option("<id>", "with this request id", text),
  outcome: option("<what>", REQUEST_OUTCOMES.join(", "), text),
  reason: option(
    "<text>",
    "why, shown with the change",
    text.max(REASON_CHARS_MAX),
  ),
  to: option(
    "<n>",
    "the weight, from 1 to 10000",
    text.regex(/^\d{1,5}$/, "Must be a whole number").transform(Number)
      .pipe(overrideWeight),
  ),
  log: option(
    "<files...>",
    "log lines of all edges, as JSON, in one file or several",
    z.array(text),
  ),
  unlogged: option(
    "<n>",
    "how many requests of killed edges may have no line",
    text.regex(/^\d{1,9}$/, "Must be a whole number").transform(Number),
  ),
  watch: option("", "show it again every two seconds", flag),
  json: option("", "print one JSON object", flag),
});
const GIVEN_OPTIONS = OPTIONS.partial();

/** The options of a command, with their checked values. */
export type Options = z.output<typeof GIVEN_OPTIONS>;

/** The name of an option in the code, such as `tokensPerDay`. */
export type OptionName = keyof Options;

/**
 * `tokensPerDay` is the option `--tokens-per-day`, but limits per minute have short
 * names.
 */
function flagOf(name: string): string {
  if (name === "requestsPerMinute") return "--rpm";
  if (name === "tokensPerMinute") return "--tpm";
  return `--${settings.limitWords(name, "-")}`;
}

/** The name of a member or a parameter of the admin API as an option. */
function flagOfParam(param: string): string {
  const name = param.replace(/^limits\./, "").replaceAll("_", "-");
  if (name === "requests-per-minute") return "--rpm";
  if (name === "tokens-per-minute") return "--tpm";
  return name === "expires-at" ? "--expires" : `--${name}`;
}

const FORCE_HINT = "\nTo name a model before it is configured, add --force";

/** Words a refusal of the admin API as commands do. */
function refusedCommand(error: unknown): never {
  if (!(error instanceof AdminRefused)) throw error;
  const { code, message, param = "" } = error;
  const isMistake = code === "invalid_value" || code === "invalid_json";
  if (isMistake && param !== "") {
    const hint = param === "models" ? FORCE_HINT : "";
    const text = `${flagOfParam(param)}: ${message}${hint}`;
    throw new UsageError(text, { cause: error });
  }
  if (isMistake) throw new UsageError(message, { cause: error });
  if (EXIT_BY_CODE.has(code)) throw error;
  throw new CommandRefused(message, { cause: error });
}

/** The exit codes of refusals that say something of the connection. */
export const EXIT_BY_CODE: ReadonlyMap<AdminRefused["code"], number> = new Map([
  ["unavailable", 69],
  ["internal_error", 69],
  ["unauthorized", 77],
  ["forbidden", 77],
]);

/** The numbers 69 and 77 are from sysexits.h. */
export const EXIT_CODES_HELP =
  `Exit codes: 0 done, 1 refused, 2 invalid command line,
69 no answer from Redis or the admin API, or a change not confirmed to be on disk,
77 the Redis user or the admin key lacks a permission, ${EXIT_CONFIG} a mistake in the environment.`;

/**
 * Reads the arguments. Returns the text of a help page if they ask for one; throws
 * {@link UsageError}.
 */
export function parseCommand(
  areas: Readonly<Record<string, Area>>,
  args: readonly string[],
) {
  let printed = "";
  let parsed:
    | { isJson: boolean; run: (deps: CommandDeps) => Promise<Output> }
    | undefined;
  const print = (text: string) => {
    printed += text;
  };
  const version = [versionLine("gateway"), "--version"] as const;
  const program = new Program("gateway").version(...version).exitOverride()
    .configureOutput({ writeOut: print, writeErr: print })
    .showHelpAfterError("(--help lists commands and options)")
    .addHelpText("afterAll", `\n${EXIT_CODES_HELP}`);
  for (const [areaName, area] of Object.entries(areas)) {
    const { title, notes, options: common = [], commands, usual } = area;
    const group = program.command(areaName).version(...version)
      .description(title).addHelpText("after", `\n${notes}`);
    for (const { usage, help, run, options = [] } of commands) {
      const isDefault = usage === usual;
      const command = group.command(usage, { isDefault }).description(help);
      for (const option of [...common, ...options, "json"] as const) {
        const { title, description } = OPTIONS.shape[option].meta() ?? {};
        command.option(`${flagOf(option)} ${title}`, description);
      }
      command.action(() => {
        const [argument = ""] = command.args;
        const word = usage.endsWith("<email>")
          ? parseEmail(argument)
          : argument;
        if (word === null) {
          throw new UsageError(
            `Not an e-mail address, such as ada@example.org: ${clip(argument)}`,
          );
        }
        const { rpm, tpm, ...others } = command.opts();
        const limits = { requestsPerMinute: rpm, tokensPerMinute: tpm };
        const checked = checkOptions({ ...limits, ...others });
        parsed = {
          isJson: checked.json === true,
          run: async (deps) =>
            await run({ ...deps, options: checked, word })
              .catch(refusedCommand),
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
  const { data, error } = GIVEN_OPTIONS.safeParse(values);
  if (data !== undefined) return data;
  const mistakes = error.issues.map(({ path: [name], message }) =>
    `${flagOf(String(name))}: ${message}`
  );
  throw new UsageError([...new Set(mistakes)].join("\n"));
}

/** The answer as text: a table, or one line per member of the object. */
export function outputText({ json, table, note }: Output): string {
  const lines = table === undefined
    ? Object.entries(json).map(([name, value]) => [name, cellOf(name, value)])
    : table.rows.map((row) =>
      table.columns.map((name) => cellOf(name, row[name]))
    );
  if (table && lines.length > 0) {
    lines.unshift(
      table.columns.map((name) => name.toUpperCase().replaceAll("_", " ")),
    );
  }
  const width = (column: number) =>
    Math.max(...lines.map((line) => line[column]?.length ?? 0));
  const aligned = lines.map((line) =>
    line.map((cell, at) => cell.padEnd(width(at))).join("  ").trimEnd()
  );
  return [...aligned, ...note ? [note] : []].join("\n");
}

function cellOf(name: string, value: unknown): string {
  // Besides times, only the creator of a key may be missing: that of a key from the
  // command line.
  if (value === null) return name.endsWith("_at") ? "never" : "-";
  if (value === "") return "-";
  if (Array.isArray(value)) return value.join(", ") || "all";
  if (typeof value !== "object") return String(value);
  const set = Object.entries(value).filter(([, limit]) => limit !== 0);
  return set.map((entry) => entry.join(" ")).join(", ") || "none";
}

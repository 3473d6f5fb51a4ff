/** Reads a service's configuration from its environment. */
import * as z from "zod";
import { clip } from "./error_text.ts";

/** Exit status of a service whose configuration is wrong: EX_CONFIG of sysexits.h. */
export const EXIT_CONFIG = 78;

/** A configuration that cannot be used; `message` tells the operator all mistakes at once. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";

  /** `subject` is what is wrong, as in "the environment". */
  constructor(subject: string, readonly mistakes: readonly string[]) {
    const count = mistakes.length === 1
      ? "1 mistake"
      : `${mistakes.length} mistakes`;
    const lines = mistakes.map((mistake) =>
      `  - ${mistake.replaceAll("\n", "\n    ")}`
    );
    super([`${count} in ${subject}:`, ...lines].join("\n"));
  }
}

/** The environment as plain data. An empty value counts as absent. */
export type Env = { readonly [name: string]: string | undefined };

/** One variable: the schema of its text, trimmed and not empty, with an {@link About}. */
export type Variable<T> = z.ZodType<T, string | undefined>;
export type Variables = { readonly [key: string]: Variable<unknown> };

/** The values of {@link Variables}. */
export type ConfigOf<V extends Variables> = {
  readonly [K in keyof V]: z.output<V[K]>;
};

/** What every kind of variable is told. Without `fallback` the variable is required. */
export interface VariableOptions<T> {
  name: string;
  /** For the operator, as the start of a sentence: "Where clients connect". */
  meaning: string;
  fallback?: T;
}

interface About extends VariableOptions<unknown> {
  /** What a value must be, with unit and bounds, as in "expected …". */
  expects: string;
  /** Never shown; may come from the file that `<name>_FILE` names. */
  isSecret?: boolean;
  /** The value is a function that reads that file again. */
  isReread?: boolean;
  isOptional?: boolean;
}

const ABOUT = z.registry<About>();

/** A variable of any kind. */
export function variable<T>(
  options: VariableOptions<T>,
  schema: Variable<T>,
  kind: Pick<About, "expects" | "isSecret" | "isReread">,
): Variable<T> {
  const { name, meaning, fallback } = options;
  return schema.register(ABOUT, { name, meaning, fallback, ...kind });
}

/** Lets a variable be absent without a default: the value is then undefined. */
export function optional<T>(required: Variable<T>): Variable<T | undefined> {
  return required.optional()
    .register(ABOUT, { ...aboutOf(required), isOptional: true });
}

/** A TCP port; 0 stands for any free one. */
export function port(options: VariableOptions<number>): Variable<number> {
  return variable(options, wholeNumber(0, 65_535), {
    expects: "a port number from 0 to 65535, 0 for any free port",
  });
}

/** Bounds and unit of a number, both bounds included. */
export interface NumberOptions extends VariableOptions<number> {
  /** Plural: "milliseconds", "bytes", "requests". */
  unit: string;
  min: number;
  max?: number;
}

/** A whole number with a unit. */
export function integer(options: NumberOptions): Variable<number> {
  return variable(options, wholeNumber(options.min, options.max), {
    expects: `a whole number of ${options.unit}${rangeOf(options)}`,
  });
}

/** A number with a unit, such as a share from 0 to 1. */
export function decimal(options: NumberOptions): Variable<number> {
  const { min, max = Number.MAX_VALUE } = options;
  const schema = z.string().regex(/^[+-]?(\d+\.?\d*|\.\d+)$/)
    .transform(Number).pipe(z.number().min(min).max(max));
  return variable(options, schema, {
    expects: `a number of ${options.unit}${rangeOf(options)}`,
  });
}

function wholeNumber(min: number, max = Number.MAX_SAFE_INTEGER) {
  return z.string().regex(/^[+-]?\d+$/).transform(Number)
    .pipe(z.int().min(min).max(max));
}

function rangeOf({ min, max }: NumberOptions): string {
  return max === undefined ? `, at least ${min}` : ` from ${min} to ${max}`;
}

/** One of a few words. */
export function choice<const T extends string>(
  options: VariableOptions<NoInfer<T>> & { values: readonly T[] },
): Variable<T> {
  const { values } = options;
  return variable<T>(options, z.string().pipe(z.enum(values)), {
    expects: `one of ${values.join(", ")}`,
  });
}

/** Words separated by commas; blanks around them and empty ones do not count. */
export function list(
  options: VariableOptions<readonly string[]> & {
    isWord?: (word: string) => boolean;
    expects?: string;
  },
): Variable<readonly string[]> {
  const { isWord = () => true, expects = "a list separated by commas" } =
    options;
  const schema = words.refine((list) => list.every(isWord));
  return variable(options, schema, { expects });
}

const words = z.string().transform((text): readonly string[] =>
  Object.freeze(text.split(",").map((word) => word.trim()).filter(Boolean))
);

/** What a URL may look like. */
export interface UrlOptions<T> extends VariableOptions<T> {
  /** As in "https:". */
  protocols: readonly string[];
  /** The URL holds a password. */
  isSecret?: boolean;
}

/** An absolute URL, kept as it was written. */
export function url(options: UrlOptions<string>): Variable<string> {
  const { protocols, isSecret = false } = options;
  const schema = z.string().refine((text) => isUrl(text, protocols));
  const expects = `a URL that begins with ${prefixesOf(protocols)}`;
  return variable(options, schema, { expects, isSecret });
}

/** One or more absolute URLs, separated by commas. */
export function urls(
  options: UrlOptions<readonly string[]>,
): Variable<readonly string[]> {
  const { protocols, isSecret = false } = options;
  const schema = words.refine((texts) =>
    texts.length > 0 && texts.every((text) => isUrl(text, protocols))
  );
  const prefixes = prefixesOf(protocols);
  return variable(options, schema, {
    expects:
      `one or more URLs that begin with ${prefixes}, separated by commas`,
    isSecret,
  });
}

function isUrl(text: string, protocols: readonly string[]): boolean {
  const parsed = URL.parse(text);
  return parsed !== null && protocols.includes(parsed.protocol) &&
    parsed.hostname !== "";
}

function prefixesOf(protocols: readonly string[]): string {
  return protocols.map((protocol) => `${protocol}//`).join(" or ");
}

/** Text that is never shown. */
export function secret(options: VariableOptions<string>): Variable<string> {
  const expects = "a secret text";
  return variable(options, z.string(), { expects, isSecret: true });
}

/**
 * A secret that may be rotated. Its value is a function: from a file it is read again
 * at each call, and while the file cannot be read or is empty, the last value is used.
 */
export function changingSecret(
  options: VariableOptions<() => string>,
): Variable<() => string> {
  return variable(options, z.string().transform((text) => () => text), {
    expects: "a secret text",
    isSecret: true,
    isReread: true,
  });
}

/** A path of a file or directory; whether it exists is not checked. */
export function path(options: VariableOptions<string>): Variable<string> {
  const expects = "a path";
  return variable(options, z.string().regex(/^[^\0]+$/), { expects });
}

/** Text of one line. */
export function text(options: VariableOptions<string>): Variable<string> {
  const expects = "a text of one line";
  return variable(options, z.string().regex(/^\P{Cc}*$/u), { expects });
}

/**
 * Reads a service's configuration from its environment, frozen and typed:
 *
 * ```ts
 * const VARIABLES = {
 *   port: port({ name: "PORT", meaning: "Where clients connect", fallback: 8080 }),
 *   pepper: secret({ name: "PEPPER", meaning: "Mixed into session ids" }),
 * };
 * const config = parseEnv(VARIABLES, Deno.env.toObject(), Deno.readTextFileSync);
 * ```
 *
 * A secret may come from a file: `PEPPER_FILE` names it. Throws a
 * {@link ConfigError} with all mistakes at once; it shows the values given, but
 * never those of secrets.
 */
export function parseEnv<const V extends Variables>(
  variables: V,
  env: Env,
  readFile: (path: string) => string,
): ConfigOf<V>;
export function parseEnv(
  variables: Variables,
  env: Env,
  readFile: (path: string) => string,
): { readonly [key: string]: unknown } {
  const mistakes: string[] = [];
  const config: { [key: string]: unknown } = {};
  for (const [key, schema] of Object.entries(variables)) {
    const about = aboutOf(schema);
    const { name, meaning, expects, isSecret } = about;
    const need = `expected ${expects} (${meaning})`;
    const value = env[name]?.trim() ?? "";
    const file = isSecret ? env[`${name}_FILE`]?.trim() ?? "" : "";
    let text = value;
    let shown = isSecret
      ? `${name} (value not shown)`
      : `${name}=${quoted(hideUserinfo(value))}`;
    if (file !== "") {
      shown = `${name}_FILE=${quoted(file)}`;
      if (value !== "") {
        mistakes.push(`${name} and ${name}_FILE are both set`);
        continue;
      }
      try {
        text = readFile(file).trim();
      } catch (error) {
        mistakes.push(`${shown}\ncannot read it: ${errorMessage(error)}`);
        continue;
      }
      if (text === "") {
        mistakes.push(`${shown}\nthe file is empty`);
        continue;
      }
      shown += " (content not shown)";
    }
    if (text === "") {
      config[key] = about.fallback;
      if (about.fallback === undefined && about.isOptional !== true) {
        mistakes.push(`${name} is missing\n${need}`);
      }
      continue;
    }
    const read = schema.safeParse(text);
    if (!read.success) mistakes.push(`${shown}\n${need}`);
    else if (about.isReread === true && file !== "") {
      config[key] = rereading(text, () => readFile(file).trim());
    } else config[key] = read.data;
  }
  if (mistakes.length > 0) throw new ConfigError("the environment", mistakes);
  return Object.freeze(config);
}

function rereading(first: string, read: () => string): () => string {
  let last = first;
  return () => {
    try {
      last = read() || last;
    } catch {
      // The file is being replaced or is gone: keep the last value.
    }
    return last;
  };
}

/** The variables as a Markdown table: name, meaning, what is expected, and the default. */
export function envTable(variables: Variables): string {
  const rows = Object.values(variables).map((schema) => {
    const about = aboutOf(schema);
    const name = `\`${about.name}\``;
    return [
      about.isSecret === true ? `${name} or \`${about.name}_FILE\`` : name,
      about.meaning,
      about.expects,
      defaultOf(about),
    ];
  });
  return [
    ["Variable", "Meaning", "Value", "Default"],
    ["---", "---", "---", "---"],
    ...rows,
  ].map((cells) => `| ${cells.map(escapeCell).join(" | ")} |\n`).join("");
}

function defaultOf({ fallback, isOptional }: About): string {
  if (fallback === undefined) return isOptional === true ? "none" : "required";
  const text = Array.isArray(fallback) ? fallback.join(",") : String(fallback);
  return text === "" ? "none" : `\`${text}\``;
}

function escapeCell(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}

function aboutOf(schema: Variable<unknown>): About {
  const about = ABOUT.get(schema);
  if (about === undefined) throw new Error("A variable without a name");
  return about;
}

/** A value as error messages show it. */
function quoted(value: string): string {
  return JSON.stringify(clip(value, 100));
}

/** The message of anything that was thrown. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A URL, or a text with some, without user and password: `redis://***@host`. */
export function hideUserinfo(text: string): string {
  // To the last "@": a password may hold one, or a comma.
  return text.replaceAll(/\/\/[^/\s]*@/g, "//***@");
}

/**
 * Reads a service's configuration from its environment: what kinds of variables there
 * are, and one message with all mistakes of the operator.
 */
import { z } from "zod";
import { clip, didYouMean } from "./error_text.ts";

/** Exit status of a service whose configuration is wrong: EX_CONFIG of sysexits.h. */
export const EXIT_CONFIG = 78;

/** An invalid configuration; `message` lists all mistakes for the operator. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";

  /** `subject` is where the mistakes are, as in "the environment". */
  constructor(subject: string, readonly mistakes: readonly string[]) {
    const { length } = mistakes;
    const lines = mistakes.map((mistake) => mistake.replaceAll("\n", "\n    "));
    const head = `${length} mistake${length === 1 ? "" : "s"} in ${subject}:`;
    super([head, ...lines].join("\n  - "));
  }
}

/** The environment. An empty value counts as absent. */
export type Env = { readonly [name: string]: string | undefined };

/** The schema of a variable's text, which is trimmed and never empty. */
export type Variable<T> = z.ZodType<T, string | undefined>;
/**
 * Variables by name, made by the functions below, with their meaning in `describe()`.
 */
export type Variables = { readonly [name: string]: Variable<unknown> };

/** The values of variables by name. */
export type ConfigOf<V extends Variables> = Readonly<
  { [Name in keyof V]: z.output<V[Name]> }
>;

/** Properties of a variable, besides its name and meaning. */
export interface About {
  /** The valid values, with unit and bounds, as in "expected …". */
  expects: string;
  /** The valid values, when they are a few words. */
  words?: readonly string[];
  /** Its value is never shown and may be in the file that `<name>_FILE` names. */
  isSecret?: boolean;
  /** The value is a function that reads that file again. */
  isReread?: boolean;
  /** The text is the path of a file, and the value is the content of that file. */
  isFile?: boolean;
}

const ABOUT = z.registry<About>();

/**
 * A variable of a kind of its own: `about` is what documents and messages say of it.
 */
export function variable<T>(schema: Variable<T>, about: About): Variable<T> {
  return schema.register(ABOUT, about);
}

/** A variable that is a port of TCP; 0 stands for any free one. */
export function port(): Variable<number> {
  const expects = "a port number from 0 to 65535, 0 for any free port";
  return variable(wholeNumber(0, 65_535), { expects });
}

/**
 * A whole number, bounds included. The unit is plural: "milliseconds", "bytes",
 * "requests".
 */
export function integer(
  unit: string,
  { min, max }: { min: number; max: number },
): Variable<number> {
  const expects = `a whole number of ${unit} from ${min} to ${max}`;
  return variable(wholeNumber(min, max), { expects });
}

/** A variable that is a share of a whole, from 0 to 1. */
export function share(): Variable<number> {
  const schema = z.string().regex(/^(0|1|0?\.\d+)$/).transform(Number);
  return variable(schema, { expects: "a share from 0 to 1, such as 0.05" });
}

function wholeNumber(min: number, max: number) {
  return z.string().regex(/^[+-]?\d+$/).transform(Number)
    .pipe(z.int().min(min).max(max));
}

/** One of a few words. */
export function choice<const T extends string>(
  values: readonly T[],
): Variable<T> {
  const expects = `one of ${values.join(", ")}`;
  return variable(z.enum(values), { expects, words: values });
}

/**
 * One or more words separated by commas, each of which `parse` turns into a value, or
 * null if it is wrong.
 */
export function list<T>(
  what: string,
  parse: (word: string) => T | null,
): Variable<readonly T[]> {
  const schema = z.string().transform((text, context): readonly T[] => {
    const words = text.split(",").map((word) => word.trim()).filter(Boolean);
    const values = words.map(parse).filter((value) => value !== null);
    if (values.length < (words.length || 1)) context.addIssue("wrong word");
    return values;
  });
  return variable(schema, { expects: `${what} separated by commas` });
}

/** A `parse` for {@link list} that accepts the words that match `form`, unchanged. */
export function matching(form: RegExp): (word: string) => string | null {
  return (word) => form.test(word) ? word : null;
}

/** What a URL may have after its host. */
export interface UrlPath {
  /** The path must match this. */
  path: RegExp;
  /** The path in words, as in "a URL that begins with redis://, …". */
  says: string;
}

/**
 * An absolute URL, kept unchanged. The protocols are as in "https:". Without `path`,
 * any path is valid.
 */
export function url(
  protocols: readonly string[],
  path?: UrlPath,
): Variable<string> {
  const schema = z.string().refine((text) =>
    isUrl(text, protocols) &&
    (path === undefined || path.path.test(new URL(text).pathname))
  );
  const form = `a URL that begins with ${prefixesOf(protocols)}`;
  const expects = path === undefined ? form : `${form}, ${path.says}`;
  return variable(schema, { expects });
}

/** One or more absolute URLs that may contain passwords, separated by commas. */
export function secretUrls(
  protocols: readonly string[],
): Variable<readonly string[]> {
  const what = `one or more URLs that begin with ${prefixesOf(protocols)},`;
  return hidden(list(what, (text) => isUrl(text, protocols) ? text : null));
}

/** Makes a variable a secret: never shown, and optionally read from a file. */
export function hidden<T>(visible: Variable<T>): Variable<T> {
  return variable(visible, { ...aboutOf(visible), isSecret: true });
}

/**
 * Whether a text is a URL of one of these protocols, as in "https:", that clients can
 * use: they decode the user and the password.
 */
export function isUrl(text: string, protocols: readonly string[]): boolean {
  const url = URL.parse(text);
  if (url === null) return false;
  try {
    decodeURIComponent(url.username + url.password);
  } catch {
    return false;
  }
  return protocols.includes(url.protocol) && url.hostname !== "";
}

function prefixesOf(protocols: readonly string[]): string {
  return protocols.map((protocol) => `${protocol}//`).join(" or ");
}

/** A text that is never shown, and optionally read from a file. */
export function secret(): Variable<string> {
  return variable(z.string(), { expects: "a secret text", isSecret: true });
}

/**
 * A secret that may be rotated: a function that reads its file again; while that fails,
 * it returns the last value.
 */
export function changingSecret(): Variable<() => string> {
  const schema = z.string().transform((text) => () => text);
  return variable(schema, { ...aboutOf(secret()), isReread: true });
}

/** The path of a file that somebody else reads. */
export function path(): Variable<string> {
  return variable(z.string().regex(/^[^\0]+$/), { expects: "a path" });
}

/** The path of a file, whose content is the value. */
export function file(): Variable<string> {
  return variable(z.string(), { expects: "a path", isFile: true });
}

/** A text without line ends and other control characters. */
export function text(): Variable<string> {
  const schema = z.string().regex(/^\P{Cc}*$/u);
  return variable(schema, { expects: "a text of one line" });
}

/**
 * Reads a service's configuration from its environment, frozen and typed:
 * `parseEnv({ PORT: port().default(8080).describe("Where clients connect") }, …)`.
 * A variable without `default()` or `optional()` is required. A secret may be in
 * a file: `PEPPER_FILE` names it. Throws a {@link ConfigError} with all mistakes at
 * once, which shows the values, but never those of secrets.
 */
export function parseEnv<const V extends Variables>(
  variables: V,
  env: Env,
  readFile: (path: string) => string,
): ConfigOf<V>;
/** The implementation, for variables of any types. */
export function parseEnv(
  variables: Variables,
  env: Env,
  readFile: (path: string) => string,
): { readonly [name: string]: unknown } {
  const mistakes: string[] = [];
  const config: Record<string, unknown> = {};
  for (const [name, schema] of Object.entries(variables)) {
    try {
      config[name] = readVariable(name, schema, { env, readFile });
    } catch (error) {
      mistakes.push(errorMessage(error));
    }
  }
  if (mistakes.length > 0) throw new ConfigError("the environment", mistakes);
  return Object.freeze(config);
}

/** Where {@link parseEnv} reads. */
interface Source {
  env: Env;
  readFile: (path: string) => string;
}

/**
 * The value of one variable. Throws an Error with a message for the operator if it is
 * invalid.
 */
function readVariable(
  name: string,
  schema: Variable<unknown>,
  source: Source,
): unknown {
  const about = aboutOf(schema);
  const { text, label, reread } = textOf(name, about, source);
  const parsed = schema.safeParse(text === "" ? undefined : text);
  if (parsed.success) {
    return about.isReread && reread !== null
      ? rereading(text, reread)
      : parsed.data;
  }
  const { expects, words = [] } = about;
  const expected = `expected ${expects}${didYouMean(text, words)}`;
  throw new Error(`${label}\n${expected} (${schema.description})`);
}

/** The text of a variable. */
interface VariableText {
  /** Empty if the variable is absent. */
  text: string;
  /** The variable as messages show it: without secrets. */
  label: string;
  /** Reads the file with the text again; null if the text is not from a file. */
  reread: (() => string) | null;
}

/**
 * Finds the text of a variable: in the environment, or in the file that is named there.
 * Throws an Error if it cannot be read.
 */
function textOf(
  name: string,
  { isSecret, isFile }: About,
  { env, readFile }: Source,
): VariableText {
  const value = env[name]?.trim() ?? "";
  const fileName = isFile ? name : `${name}_FILE`;
  const path = isFile || isSecret ? env[fileName]?.trim() ?? "" : "";
  if (path === "") {
    let label = `${name}=${quoted(hideUserinfo(value))}`;
    if (isSecret) label = `${name} (value not shown)`;
    if (value === "") label = `${name} is missing`;
    return { text: value, label, reread: null };
  }
  if (!isFile && value !== "") {
    throw new Error(`${name} and ${fileName} are both set: remove one of them`);
  }
  const label = `${fileName}=${quoted(path)}`;
  const reread = () => readFile(path).trim();
  let text;
  try {
    text = reread();
  } catch (error) {
    throw new Error(`${label}\ncannot read it: ${errorMessage(error)}`);
  }
  if (text === "") {
    throw new Error(`${label}\nthe file is empty: write the value into it`);
  }
  return { text, label: `${label} (content not shown)`, reread };
}

/** Reads a rotated secret; keeps the last one while that fails. */
function rereading(first: string, read: () => string): () => string {
  let last = first;
  return () => {
    try {
      last = read() || last;
    } catch {
      // The file is missing or being replaced: keep the last value.
    }
    return last;
  };
}

/**
 * The properties of a variable, also of one with a default. Throws for other schemas.
 */
export function aboutOf(schema: z.core.$ZodType): About {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodOptional) {
    return aboutOf(schema.def.innerType);
  }
  const about = ABOUT.get(schema);
  if (about === undefined) throw new Error("Not a variable");
  return about;
}

const quoted = (value: string) => JSON.stringify(clip(value, 100));

/** The message of an error, or the text of anything else that was thrown. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Hides user and password of the URLs in a text: `redis://***@host`. */
export function hideUserinfo(text: string): string {
  // Up to the last "@": a password may contain one, or a comma.
  return text.replaceAll(/\/\/[^/\s]*@/g, "//***@");
}

/**
 * The members that are not undefined, for types that forbid members set to undefined.
 */
export function defined<T extends object>(
  members: T,
): { [K in keyof T]?: Exclude<T[K], undefined> };
/** The implementation, for members of any types. */
export function defined(members: object): object {
  return Object.fromEntries(
    Object.entries(members).filter(([, value]) => value !== undefined),
  );
}

/**
 * Returns the names of an object's members. The object must have none beyond those of
 * its type.
 */
export function keysOf<T extends object>(members: T): (keyof T & string)[];
/** The implementation, for members of any types. */
export function keysOf(members: object): string[] {
  return Object.keys(members);
}

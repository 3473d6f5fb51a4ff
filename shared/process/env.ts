import { hideUserinfo } from "./userinfo.ts";
import { ConfigError } from "./config_error.ts";
import type { Variable } from "./env_variable.ts";
import { clip } from "./error_text.ts";

export { ConfigError, EXIT_CONFIG } from "./config_error.ts";
export * from "./env_variable.ts";

/** The environment as plain data. An empty value counts as absent. */
export type Env = { readonly [name: string]: string | undefined };

/** The variables of one service, by the name that its code uses. */
export type Variables = { readonly [key: string]: Variable<unknown> };

/** The values of {@link Variables}. */
export type ConfigOf<V extends Variables> = {
  readonly [K in keyof V]: V[K] extends Variable<infer T> ? T : never;
};

/** Longest value that is repeated in a mistake. */
const SHOWN_CHARS_MAX = 100;

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
 * A secret may come from a file: `PEPPER_FILE` names it, `readFile` reads it (and
 * throws when it cannot). Throws a {@link ConfigError} with all mistakes at once;
 * it shows the values given, but never those of secrets.
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
  for (const [key, variable] of Object.entries(variables)) {
    const given = givenValue(variable, env, readFile);
    if (given.type === "mistake") {
      mistakes.push(given.text);
    } else if (given.type === "absent") {
      if (variable.presence === "required") {
        mistakes.push(`${variable.name} is missing\n${needOf(variable)}`);
      }
      config[key] = variable.fallback;
    } else {
      const read = variable.schema.safeParse(given.value);
      const { fromFile } = variable;
      if (read.success) {
        config[key] = fromFile !== undefined && given.reread !== undefined
          ? fromFile(given.value, given.reread)
          : read.data;
      } else mistakes.push(`${given.shown}\n${needOf(variable)}`);
    }
  }
  if (mistakes.length > 0) throw new ConfigError("the environment", mistakes);
  return Object.freeze(config);
}

type Given =
  | { type: "absent" }
  | {
    type: "given";
    value: string;
    /** The assignment, fit for a message. */
    shown: string;
    /** Reads the file again that the value came from. */
    reread?: () => string;
  }
  | { type: "mistake"; text: string };

function givenValue(
  variable: Variable<unknown>,
  env: Env,
  readFile: (path: string) => string,
): Given {
  const { name, isSecret } = variable;
  const value = env[name]?.trim() ?? "";
  const path = isSecret ? env[`${name}_FILE`]?.trim() ?? "" : "";
  if (value !== "" && path !== "") {
    return { type: "mistake", text: `${name} and ${name}_FILE are both set` };
  }
  if (path !== "") return readSecret(name, path, readFile);
  if (value === "") return { type: "absent" };
  const shown = isSecret
    ? `${name} (value not shown)`
    : `${name}=${JSON.stringify(clip(hideUserinfo(value), SHOWN_CHARS_MAX))}`;
  return { type: "given", value, shown };
}

function readSecret(
  name: string,
  path: string,
  readFile: (path: string) => string,
): Given {
  const shown = `${name}_FILE=${JSON.stringify(clip(path, SHOWN_CHARS_MAX))}`;
  try {
    const value = readFile(path).trim();
    return value === ""
      ? { type: "mistake", text: `${shown}\nthe file is empty` }
      : {
        type: "given",
        value,
        shown: `${shown} (content not shown)`,
        reread: () => readFile(path).trim(),
      };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { type: "mistake", text: `${shown}\ncannot read it: ${why}` };
  }
}

function needOf({ expects, meaning }: Variable<unknown>): string {
  return `expected ${expects} (${meaning})`;
}

/**
 * The variables as a Markdown table for the documentation: name, meaning, what
 * is expected, and the default.
 */
export function envTable(variables: Variables): string {
  const rows = Object.values(variables).map((variable) => [
    variable.isSecret
      ? `\`${variable.name}\` or \`${variable.name}_FILE\``
      : `\`${variable.name}\``,
    variable.meaning,
    variable.expects,
    defaultOf(variable),
  ]);
  return [
    ["Variable", "Meaning", "Value", "Default"],
    ["---", "---", "---", "---"],
    ...rows,
  ].map((cells) => `| ${cells.map(escapeCell).join(" | ")} |\n`).join("");
}

function defaultOf(variable: Variable<unknown>): string {
  if (variable.presence === "required") return "required";
  const { fallback } = variable;
  if (fallback === undefined) return "none";
  const text = Array.isArray(fallback) ? fallback.join(",") : String(fallback);
  return text === "" ? "none" : `\`${text}\``;
}

function escapeCell(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}

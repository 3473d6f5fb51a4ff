/** Where workers find the keys of model servers, which the models file only names. */
import type { FileContent } from "../models/catalog.ts";
import { ConfigError, type Env, errorMessage } from "../process/env.ts";
import type { ReadFile } from "../reload/reading.ts";

/** Keys of model servers by the name of the variable that holds them. */
export type BackendKeys = ReadonlyMap<string, string>;

/** The places where a key may be. */
export interface KeyPlaces {
  /** The key as the variable itself, or the path of its file as `<name>_FILE`. */
  readonly env: Env;
  readonly readFile: ReadFile;
  /** A directory of files that are called like the variables. */
  readonly directory?: string | undefined;
}

/**
 * The keys that the models name, by the names of their variables. Throws a
 * {@link ConfigError} with every key that is missing, without showing any.
 */
export function backendKeys(
  { models, servers }: FileContent,
  places: KeyPlaces,
): BackendKeys {
  const backends = models.flatMap(({ backends }) => backends);
  const templates = servers.map(({ template }) => template);
  const names = [...backends, ...templates].map((each) => each.api_key_env)
    .filter((name) => name !== undefined);
  const mistakes: string[] = [];
  const keys = new Map<string, string>();
  for (const name of new Set(names)) {
    try {
      keys.set(name, readKey(name, places));
    } catch (error) {
      mistakes.push(errorMessage(error));
    }
  }
  if (mistakes.length > 0) throw new ConfigError("the environment", mistakes);
  return keys;
}

/** The key of a variable. Throws an Error with a message for the operator. */
function readKey(name: string, { env, readFile, directory }: KeyPlaces) {
  const value = env[name]?.trim() ?? "";
  const path = env[`${name}_FILE`]?.trim() ?? "";
  if (value !== "" && path !== "") {
    throw new Error(
      `${name} and ${name}_FILE are both set: remove one of them`,
    );
  }
  if (value !== "") return value;
  if (path !== "") return readKeyFile(`${name}_FILE`, path, readFile);
  if (directory !== undefined) {
    return readKeyFile(name, `${directory}/${name}`, readFile);
  }
  throw new Error(
    `${name} is missing: the models file names it as the key of a backend.\n` +
      `Set it, or ${name}_FILE, in the environment of the worker`,
  );
}

function readKeyFile(name: string, path: string, readFile: ReadFile): string {
  let key: string;
  try {
    key = readFile(path).trim();
  } catch (error) {
    const why = errorMessage(error);
    throw new Error(
      `${name} is missing: the models file names it as the key of a backend.\n` +
        `Cannot read its file ${path}: ${why}`,
    );
  }
  if (key !== "") return key;
  throw new Error(`${name}: its file ${path} is empty: write the key into it`);
}

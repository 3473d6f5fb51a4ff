/** Where workers find the keys of model servers, which the models file only names. */
import type { FileContent } from "../../models/catalog.ts";
import { ConfigError, type Env, errorMessage } from "../../process/env.ts";
import type { ReadFile } from "../../reload/reading.ts";

/** Keys of model servers by the name of the variable that holds them. */
export type BackendKeys = ReadonlyMap<string, string>;

/** What a header may have. */
const VISIBLE_ASCII = /^[\x20-\x7e]+$/;

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
  const pools = [...backends, ...templates].map(({ keys }) =>
    keys.map(({ variable }) => variable)
  );
  const mistakes: string[] = [];
  const keys = new Map<string, string>();
  for (const name of new Set(pools.flat())) {
    try {
      const key = readKey(name, places);
      if (!VISIBLE_ASCII.test(key)) {
        throw new Error(
          `${name}: the key has other characters than visible ASCII`,
        );
      }
      keys.set(name, key);
    } catch (error) {
      mistakes.push(errorMessage(error));
    }
  }
  for (const pool of pools) mistakes.push(...sameKeys(pool, keys));
  if (mistakes.length > 0) throw new ConfigError("the environment", mistakes);
  return keys;
}

/** The keys of a server that are one and the same, whose limits would count twice. */
function sameKeys(pool: readonly string[], keys: BackendKeys): string[] {
  return pool.flatMap((name, index) => {
    const value = keys.get(name);
    const same = pool.slice(0, index)
      .find((other) => value !== undefined && keys.get(other) === value);
    return same === undefined
      ? []
      : [`${same} and ${name} hold the same key: name one of them`];
  });
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

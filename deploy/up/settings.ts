import { resolve } from "node:path";
import {
  CATALOG_VARIABLES,
  catalogFromSimulator,
  catalogIfGiven,
  UPSTREAM_KEY_ENV,
} from "@gateway/shared/models/catalog_variables";
import { parseEnv, secret } from "@gateway/shared/process/env";
import type { Environment } from "./services.ts";

const hidden = secret().optional();
const VARIABLES = {
  NATS_URL: hidden,
  REDIS_URL: hidden,
  [UPSTREAM_KEY_ENV]: hidden,
  ...CATALOG_VARIABLES,
};

export type Settings = ReturnType<typeof readSettings>;

export type ModelSettings = Pick<
  Settings,
  "catalog" | "hasSimulator" | "keyOf"
>;

/** Reads the environment and the files that it names, relative to `cwd`. Throws a `ConfigError` with all mistakes. */
export function readSettings(env: Environment, cwd: string) {
  const values = parseEnv(
    VARIABLES,
    env,
    (path) => Deno.readTextFileSync(resolve(cwd, path)),
  );
  const { [UPSTREAM_KEY_ENV]: upstreamKey } = values;
  const given = catalogIfGiven(values, upstreamKey !== undefined);
  return {
    ...values,
    hasSimulator: given === undefined,
    catalog: given ?? catalogFromSimulator("http://simulator/v1"),
    /** The key of a model server that this variable holds. */
    keyOf: (variable: string) =>
      variable === UPSTREAM_KEY_ENV ? upstreamKey : env[variable]?.trim(),
  };
}

import { resolve } from "node:path";
import { type Catalog, DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import {
  CATALOG_VARIABLES,
  catalogIfGiven,
} from "@gateway/shared/models/catalog_variables";
import { errorMessage, parseEnv, secret } from "@gateway/shared/process/env";
import type { Environment } from "./services.ts";

const url = secret().optional();
const VARIABLES = { NATS_URL: url, REDIS_URL: url, ...CATALOG_VARIABLES };
const PROBE_MS_MAX = 2_000;

/** What the launcher itself needs from the environment. */
export type Settings = ReturnType<typeof readSettings>;

/**
 * Reads the environment and the files that it names, relative to `cwd`. Throws a
 * `ConfigError` with all mistakes. Without a model server, `catalog` is undefined.
 */
export function readSettings(env: Environment, cwd: string) {
  const values = parseEnv(
    VARIABLES,
    env,
    (path) => Deno.readTextFileSync(resolve(cwd, path)),
  );
  return { ...values, catalog: catalogIfGiven(values, false) };
}

/** A model of the summary. */
export interface DescribedModel {
  id: string;
  /** What answers, and why its server cannot be reached. */
  servers: string;
  /** Whether one of its servers accepts connections. */
  isReachable: boolean;
}

/** Looks whether the servers of each model can be reached. Never rejects. */
export async function describeModels(
  catalog?: Catalog,
): Promise<DescribedModel[]> {
  if (catalog === undefined) {
    const servers = "built-in simulator (not a real model)";
    return [{ id: DEFAULT_MODEL_ID, servers, isReachable: true }];
  }
  return await Promise.all(
    [...catalog.values()].map(async ({ id, backends }) => {
      const urls = backends.map(({ base_url }) => base_url);
      const servers = await Promise.all(urls.map(describeServer));
      return {
        id,
        servers: servers.join(", "),
        isReachable: servers.some((text) => urls.includes(text)),
      };
    }),
  );
}

/** The URL, and `not reachable (connection refused)` if no server accepts connections there. */
async function describeServer(url: string): Promise<string> {
  const { protocol, hostname, port } = new URL(url);
  const timeUp = AbortSignal.timeout(PROBE_MS_MAX);
  try {
    const connection = await Deno.connect({
      hostname: hostname.replaceAll(/[[\]]/g, ""),
      port: Number(port || (protocol === "https:" ? 443 : 80)),
      signal: timeUp,
    });
    connection.close();
    return url;
  } catch (error) {
    const why = timeUp.aborted
      ? `no answer in ${PROBE_MS_MAX / 1_000} s`
      : errorMessage(error).replace(/ \(os error.*/, "").toLowerCase();
    return `${url}: not reachable (${why})`;
  }
}

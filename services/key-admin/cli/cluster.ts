import { parseEnv } from "@gateway/shared/process/env";
import {
  busAccess,
  NATS_VARIABLES,
  REDIS_VARIABLES,
  redisAccess,
} from "@gateway/shared/process/service_variables";
import { z } from "zod";
import { defaultLimitsOf, LIMIT_VARIABLES } from "../domain/keys/settings.ts";
import { CommandRefused } from "./command_line.ts";

/** The cluster that a command works on. */
export type Cluster = ReturnType<typeof findCluster>;

const UP_FILE = ".run/up.json";
const CLUSTER_VARIABLES = {
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
  ...LIMIT_VARIABLES,
};

const upFile = z.object({
  redis_url: z.string(),
  nats_url: z.string(),
  console_url: z.string(),
});

/**
 * Where the cluster is: the variables of the service, else what `deno task up`
 * wrote. Throws a `ConfigError` for variables that do not fit together, and
 * {@link CommandRefused} when nothing says where it is.
 */
export function findCluster(
  env: Record<string, string>,
  readText: (path: string) => string,
) {
  const isTold = [env.REDIS_URL, env.REDIS_URL_FILE, env.REDIS_SENTINELS]
    .some((value) => value !== undefined && value !== "");
  const up = isTold ? null : readUpFile(readText);
  const variables = up === null ? env : {
    ...env,
    REDIS_URL: up.redis_url,
    NATS_URL: env.NATS_URL || up.nats_url,
  };
  const settings = parseEnv(CLUSTER_VARIABLES, variables, readText);
  return {
    redis: redisAccess(settings),
    bus: busAccess(settings),
    /** Origin of the console, for links. */
    consoleUrl: env.PUBLIC_URL || (up?.console_url ?? "http://127.0.0.1:8081"),
    defaultLimits: defaultLimitsOf(settings),
    /** What to check when Redis does not answer. */
    hint: up === null
      ? "The address comes from REDIS_…: check host, port, user and password"
      : `The address comes from ${UP_FILE}: is "deno task up" still running?`,
  };
}

function readUpFile(readText: (path: string) => string) {
  try {
    return upFile.parse(JSON.parse(readText(UP_FILE)));
  } catch (cause) {
    throw new CommandRefused(
      `No cluster is running here: start one with "npx -y deno task up", or set REDIS_URL`,
      { cause },
    );
  }
}

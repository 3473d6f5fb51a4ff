/** The only file of this service that reads the environment. */
import { readSettingsFile } from "@gateway/shared/reload/files";
import { integer, parseEnv } from "@gateway/shared/process/env";
import {
  COMMON_VARIABLES,
  listenVariables,
} from "@gateway/shared/process/service_variables";

const DEFAULT_PORT = 8090;

/** The variables of the simulator, with their meanings and defaults. */
export const SIMULATOR_VARIABLES = {
  ...COMMON_VARIABLES,
  ...listenVariables(DEFAULT_PORT),
  SIMULATOR_FIRST_TOKEN_MS: integer("milliseconds", { min: 0, max: 600_000 })
    .default(0).describe(
      "How long the simulator waits before its first token",
    ),
  SIMULATOR_TOKENS_PER_SECOND: integer("tokens per second", {
    min: 0,
    max: 1_000_000,
  }).default(0).describe("Pace of the simulator, 0 for no limit"),
};

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig() {
  const values = parseEnv(
    SIMULATOR_VARIABLES,
    Deno.env.toObject(),
    readSettingsFile,
  );
  return {
    logLevel: values.LOG_LEVEL,
    ops: { hostname: values.OPS_HOST, port: values.OPS_PORT },
    listen: { hostname: values.HOST, port: values.PORT },
    pace: {
      firstTokenMs: values.SIMULATOR_FIRST_TOKEN_MS,
      tokensPerSecond: values.SIMULATOR_TOKENS_PER_SECOND,
    },
    drainMs: values.DRAIN_SECONDS * 1_000,
  };
}

/** The one place of this service that reads the environment. */
import { decimal, integer, parseEnv } from "@gateway/shared/process/env";
import type { LogLevel } from "@gateway/shared/process/log";
import {
  listenVariables,
  SERVICE_VARIABLES,
} from "@gateway/shared/process/service_variables";
import type { Pace } from "./controls.ts";

const DEFAULT_PORT = 8090;
const FIRST_TOKEN_MS_MAX = 600_000;
const TOKENS_PER_SECOND_MAX = 1_000_000;
const MS_PER_SECOND = 1_000;

/** Every variable of the simulator. */
export const SIMULATOR_VARIABLES = {
  ...SERVICE_VARIABLES,
  ...listenVariables(DEFAULT_PORT),
  SIMULATOR_FIRST_TOKEN_MS: integer("milliseconds", {
    min: 0,
    max: FIRST_TOKEN_MS_MAX,
  }).default(0)
    .describe("The simulator waits this long before its first token"),
  SIMULATOR_TOKENS_PER_SECOND: decimal("tokens per second", {
    min: 0,
    max: TOKENS_PER_SECOND_MAX,
  }).default(0).describe("Pace of the simulator, 0 for as fast as it can"),
};

export interface SimulatorConfig {
  logLevel: LogLevel;
  ops: { hostname: string; port: number };
  listen: { hostname: string; port: number };
  pace: Pace;
  drainMs: number;
}

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig(): SimulatorConfig {
  const env = parseEnv(
    SIMULATOR_VARIABLES,
    Deno.env.toObject(),
    Deno.readTextFileSync,
  );
  return {
    logLevel: env.LOG_LEVEL,
    ops: { hostname: env.OPS_HOST, port: env.OPS_PORT },
    listen: { hostname: env.HOST, port: env.PORT },
    pace: {
      firstTokenMs: env.SIMULATOR_FIRST_TOKEN_MS,
      tokensPerSecond: env.SIMULATOR_TOKENS_PER_SECOND,
    },
    drainMs: env.DRAIN_SECONDS * MS_PER_SECOND,
  };
}

/** The one place of this service that reads the environment. */
import { decimal, integer, parseEnv } from "@gateway/shared/process/env";
import type { LogLevel } from "@gateway/shared/process/log";
import {
  listenVariables,
  SERVICE_VARIABLES,
} from "@gateway/shared/process/service_variables";
import type { Pace } from "./completion.ts";

const DEFAULT_PORT = 8090;
const FIRST_TOKEN_MS_MAX = 600_000;
const TOKENS_PER_SECOND_MAX = 1_000_000;
const MS_PER_SECOND = 1_000;

/** Every variable of the simulator. */
export const SIMULATOR_VARIABLES = {
  ...SERVICE_VARIABLES,
  ...listenVariables(DEFAULT_PORT),
  firstTokenMs: integer({
    name: "SIMULATOR_FIRST_TOKEN_MS",
    meaning: "The simulator waits this long before its first token",
    unit: "milliseconds",
    min: 0,
    max: FIRST_TOKEN_MS_MAX,
    fallback: 0,
  }),
  tokensPerSecond: decimal({
    name: "SIMULATOR_TOKENS_PER_SECOND",
    meaning: "Pace of the simulator, 0 for as fast as it can",
    unit: "tokens per second",
    min: 0,
    max: TOKENS_PER_SECOND_MAX,
    fallback: 0,
  }),
} as const;

export interface SimulatorConfig {
  logLevel: LogLevel;
  ops: { hostname: string; port: number };
  listen: { hostname: string; port: number };
  pace: Pace;
  drainMs: number;
}

/** Reads the environment of this process. Throws a `ConfigError` with every mistake. */
export function readConfig(): SimulatorConfig {
  const env = Deno.env.toObject();
  const settings = parseEnv(SIMULATOR_VARIABLES, env, Deno.readTextFileSync);
  const { firstTokenMs, tokensPerSecond } = settings;
  return {
    logLevel: settings.logLevel,
    ops: { hostname: settings.opsHost, port: settings.opsPort },
    listen: { hostname: settings.host, port: settings.port },
    pace: { firstTokenMs, tokensPerSecond },
    drainMs: settings.drainSeconds * MS_PER_SECOND,
  };
}

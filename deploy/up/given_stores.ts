import { ConfigError, parseEnv } from "@gateway/shared/process/env";
import type { RedisAddress } from "@gateway/shared/redis/link";
import {
  NATS_VARIABLES,
  REDIS_VARIABLES,
} from "@gateway/shared/process/service_variables";
import { redisAccess } from "@gateway/shared/process/store_access";
import { EXIT, UpError } from "./up_error.ts";

/** Servers of others that the operator wants to be used; absent: start one. */
export interface GivenStores {
  /** One or more addresses, separated by commas. */
  natsUrl?: string;
  redis?: RedisAddress;
}

/**
 * Reads which servers the environment names, as the services will read it.
 *
 * Throws an {@link UpError} that names every mistake, also a file that cannot be read.
 */
export function readGivenStores(
  env: Readonly<Record<string, string>>,
): GivenStores {
  const readFile = Deno.readTextFileSync;
  // An empty variable is how many tools say "not set".
  const isGiven = (name: string) => Boolean(env[name] || env[`${name}_FILE`]);
  const { natsUrl } = NATS_VARIABLES;
  try {
    return {
      ...(isGiven("NATS_URL")
        ? { natsUrl: parseEnv({ natsUrl }, env, readFile).natsUrl.join() }
        : {}),
      ...(isGiven("REDIS_URL")
        ? {
          redis: redisAccess(
            parseEnv(REDIS_VARIABLES, env, readFile),
            readFile,
          ),
        }
        : {}),
    };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new UpError(error.message, EXIT.config);
  }
}

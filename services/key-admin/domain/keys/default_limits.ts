import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import {
  type ConfigOf,
  integer,
  type Variable,
} from "@gateway/shared/process/env";
import type * as z from "zod";
import { LIMIT_VALUES } from "./settings.ts";

/** The limits of new keys and new owners that are given none. */
export interface DefaultLimits {
  key: Limits;
  owner: Limits;
}

/** No limit for anybody. */
export const NO_DEFAULT_LIMITS: DefaultLimits = {
  key: UNLIMITED,
  owner: UNLIMITED,
};

function limit(
  unit: "requests" | "tokens",
  text: string,
): z.ZodDefault<Variable<number>> {
  return integer(unit, { min: 0, max: LIMIT_VALUES[`${unit}Max`] }).default(0)
    .describe(`Default limit of ${text}; 0 for none`);
}

const KEY = "a new key";
const OWNER = "all keys of a new owner";

/** The variables behind {@link DefaultLimits}. The command line reads them too. */
export const LIMIT_VARIABLES = {
  KEY_REQUESTS_PER_MINUTE: limit("requests", `${KEY}: requests per minute`),
  KEY_TOKENS_PER_MINUTE: limit("tokens", `${KEY}: tokens per minute`),
  KEY_TOKENS_PER_DAY: limit("tokens", `${KEY}: tokens per day`),
  KEY_CONCURRENCY: limit("requests", `${KEY}: requests at the same time`),
  OWNER_REQUESTS_PER_MINUTE: limit("requests", `${OWNER}: requests per minute`),
  OWNER_TOKENS_PER_MINUTE: limit("tokens", `${OWNER}: tokens per minute`),
  OWNER_TOKENS_PER_DAY: limit("tokens", `${OWNER}: tokens per day`),
  OWNER_CONCURRENCY: limit("requests", `${OWNER}: requests at the same time`),
};

/** The default limits, from their variables. */
export const defaultLimitsOf = (
  env: ConfigOf<typeof LIMIT_VARIABLES>,
): DefaultLimits => ({
  key: {
    requestsPerMinute: env.KEY_REQUESTS_PER_MINUTE,
    tokensPerMinute: env.KEY_TOKENS_PER_MINUTE,
    tokensPerDay: env.KEY_TOKENS_PER_DAY,
    concurrency: env.KEY_CONCURRENCY,
  },
  owner: {
    requestsPerMinute: env.OWNER_REQUESTS_PER_MINUTE,
    tokensPerMinute: env.OWNER_TOKENS_PER_MINUTE,
    tokensPerDay: env.OWNER_TOKENS_PER_DAY,
    concurrency: env.OWNER_CONCURRENCY,
  },
});

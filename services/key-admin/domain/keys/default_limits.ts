import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import {
  type ConfigOf,
  integer,
  type Variable,
} from "@gateway/shared/process/env";
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
  name: string,
  what: string,
  unit: "requests" | "tokens",
): Variable<number> {
  const whose = name.startsWith("KEY")
    ? "a new key"
    : "all keys of a new owner";
  return integer({
    name,
    meaning: `Default limit of ${whose}: ${what}; 0 for none`,
    unit,
    min: 0,
    max: LIMIT_VALUES[`${unit}Max`],
    fallback: 0,
  });
}

const PER_MINUTE = "requests per minute";
const AT_ONCE = "requests at the same time";

/** The variables behind {@link DefaultLimits}. The command line reads them too. */
export const LIMIT_VARIABLES = {
  keyRequests: limit("KEY_REQUESTS_PER_MINUTE", PER_MINUTE, "requests"),
  keyTokens: limit("KEY_TOKENS_PER_MINUTE", "tokens per minute", "tokens"),
  keyTokensPerDay: limit("KEY_TOKENS_PER_DAY", "tokens per day", "tokens"),
  keyConcurrency: limit("KEY_CONCURRENCY", AT_ONCE, "requests"),
  ownerRequests: limit("OWNER_REQUESTS_PER_MINUTE", PER_MINUTE, "requests"),
  ownerTokens: limit("OWNER_TOKENS_PER_MINUTE", "tokens per minute", "tokens"),
  ownerTokensPerDay: limit("OWNER_TOKENS_PER_DAY", "tokens per day", "tokens"),
  ownerConcurrency: limit("OWNER_CONCURRENCY", AT_ONCE, "requests"),
} as const;

/** The default limits, from their variables. */
export function defaultLimitsOf(
  env: ConfigOf<typeof LIMIT_VARIABLES>,
): DefaultLimits {
  return {
    key: {
      requestsPerMinute: env.keyRequests,
      tokensPerMinute: env.keyTokens,
      tokensPerDay: env.keyTokensPerDay,
      concurrency: env.keyConcurrency,
    },
    owner: {
      requestsPerMinute: env.ownerRequests,
      tokensPerMinute: env.ownerTokens,
      tokensPerDay: env.ownerTokensPerDay,
      concurrency: env.ownerConcurrency,
    },
  };
}

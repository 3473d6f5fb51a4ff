import {
  type ConfigOf,
  integer,
  type Variable,
} from "@gateway/shared/process/env";
import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import { LIMIT_VALUES } from "./settings.ts";

/** The limits that a new key and a new owner get where nobody names others. */
export interface DefaultLimits {
  key: Limits;
  owner: Limits;
}

/** No limit for anybody. */
export const NO_DEFAULT_LIMITS: DefaultLimits = {
  key: UNLIMITED,
  owner: UNLIMITED,
};

const LIMIT_MAX = {
  requests: LIMIT_VALUES.requestsMax,
  tokens: LIMIT_VALUES.tokensMax,
};

/** `limitVariable("KEY_TOKENS_PER_DAY", "tokens per day", "a new key")` */
function limitVariable(
  name: string,
  what: `${keyof typeof LIMIT_MAX} ${string}`,
  whose: string,
): Variable<number> {
  const unit = what.startsWith("tokens") ? "tokens" : "requests";
  return integer({
    name,
    meaning: `Limit of ${whose} where none is named: ${what}; 0 for none`,
    unit,
    min: 0,
    max: LIMIT_MAX[unit],
    fallback: 0,
  });
}

const [KEY, OWNER] = ["a new key", "all keys of a new owner"];

/** Limits that apply where nobody names others. The command line reads them too. */
export const LIMIT_VARIABLES = {
  keyRequestsPerMinute: limitVariable(
    "KEY_REQUESTS_PER_MINUTE",
    "requests per minute",
    KEY,
  ),
  keyTokensPerMinute: limitVariable(
    "KEY_TOKENS_PER_MINUTE",
    "tokens per minute",
    KEY,
  ),
  keyTokensPerDay: limitVariable("KEY_TOKENS_PER_DAY", "tokens per day", KEY),
  keyConcurrency: limitVariable(
    "KEY_CONCURRENCY",
    "requests at the same time",
    KEY,
  ),
  ownerRequestsPerMinute: limitVariable(
    "OWNER_REQUESTS_PER_MINUTE",
    "requests per minute",
    OWNER,
  ),
  ownerTokensPerMinute: limitVariable(
    "OWNER_TOKENS_PER_MINUTE",
    "tokens per minute",
    OWNER,
  ),
  ownerTokensPerDay: limitVariable(
    "OWNER_TOKENS_PER_DAY",
    "tokens per day",
    OWNER,
  ),
  ownerConcurrency: limitVariable(
    "OWNER_CONCURRENCY",
    "requests at the same time",
    OWNER,
  ),
} as const;

/** The default limits, from their variables. */
export function defaultLimitsOf(
  env: ConfigOf<typeof LIMIT_VARIABLES>,
): DefaultLimits {
  return {
    key: {
      requestsPerMinute: env.keyRequestsPerMinute,
      tokensPerMinute: env.keyTokensPerMinute,
      tokensPerDay: env.keyTokensPerDay,
      concurrency: env.keyConcurrency,
    },
    owner: {
      requestsPerMinute: env.ownerRequestsPerMinute,
      tokensPerMinute: env.ownerTokensPerMinute,
      tokensPerDay: env.ownerTokensPerDay,
      concurrency: env.ownerConcurrency,
    },
  };
}

import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import {
  type ConfigOf,
  integer,
  type Variable,
} from "@gateway/shared/process/env";
import { LIMIT_VALUES, limitsOf } from "./settings.ts";

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

const WHAT = {
  requestsPerMinute: ["REQUESTS_PER_MINUTE", "requests per minute"],
  tokensPerMinute: ["TOKENS_PER_MINUTE", "tokens per minute"],
  tokensPerDay: ["TOKENS_PER_DAY", "tokens per day"],
  concurrency: ["CONCURRENCY", "requests at the same time"],
} as const;

function limit(of: "key" | "owner", limitName: keyof Limits): Variable<number> {
  const [name, what] = WHAT[limitName];
  const unit = what.startsWith("tokens") ? "tokens" : "requests";
  const whose = of === "key" ? "a new key" : "all keys of a new owner";
  return integer({
    name: `${of.toUpperCase()}_${name}`,
    meaning: `Default limit of ${whose}: ${what}; 0 for none`,
    unit,
    min: 0,
    max: LIMIT_VALUES[`${unit}Max`],
    fallback: 0,
  });
}

/** The variables behind {@link DefaultLimits}. The command line reads them too. */
export const LIMIT_VARIABLES = {
  key_requestsPerMinute: limit("key", "requestsPerMinute"),
  key_tokensPerMinute: limit("key", "tokensPerMinute"),
  key_tokensPerDay: limit("key", "tokensPerDay"),
  key_concurrency: limit("key", "concurrency"),
  owner_requestsPerMinute: limit("owner", "requestsPerMinute"),
  owner_tokensPerMinute: limit("owner", "tokensPerMinute"),
  owner_tokensPerDay: limit("owner", "tokensPerDay"),
  owner_concurrency: limit("owner", "concurrency"),
} as const;

/** The default limits, from their variables. */
export const defaultLimitsOf = (
  env: ConfigOf<typeof LIMIT_VARIABLES>,
): DefaultLimits => ({
  key: limitsOf((name) => env[`key_${name}`]),
  owner: limitsOf((name) => env[`owner_${name}`]),
});

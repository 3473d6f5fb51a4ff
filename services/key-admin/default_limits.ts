import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";

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

/**
 * The end users of a key: whoever an application calls the gateway for with one key.
 * The owner of the key may limit each of them, so that one does not use up what all
 * have. What tells them apart is a header, the member `user` of the body, or the
 * session of an agent.
 */

/** How end users of a key are told apart, and what each may use. 0: no limit. */
export interface EndUsers {
  /** `header:x-user-id`, `user` or `session`. */
  readonly from: string;
  readonly requestsPerMinute: number;
  readonly tokensPerMinute: number;
  /** In billionths of the currency, on a day of `BUDGET_TIME_ZONE`. */
  readonly budgetDay: number;
}

/**
 * End users of a key of which the state is kept; beyond, the least recently used one
 * is forgotten. Each takes 450 bytes of Redis, with a budget 700.
 */
export const END_USERS_MAX = 10_000;
/** The state of an end user is kept this long after the last request. */
export const END_USER_DAYS_KEPT = 2;

const HEADER = "header:";
const FROM = /^(?:header:[a-z0-9!#$%&'*+.^_`|~-]{1,64}|user|session)$/;

/** Whether end users can be told apart by this: a header's name is in lower case. */
export const isEndUserSource = (text: string): boolean => FROM.test(text);

/** The header that names the end user; null: something else does. */
export const endUserHeader = (from: string): string | null =>
  from.startsWith(HEADER) ? from.slice(HEADER.length) : null;

const SETTING = /^(\S+) (\d+) (\d+) (\d+)$/;

/** The setting as the record of a key has it; empty: none. */
export const endUsersText = (users: EndUsers | null): string =>
  users === null ? "" : [
    users.from,
    users.requestsPerMinute,
    users.tokensPerMinute,
    users.budgetDay,
  ].join(" ");

/**
 * Reads what {@link endUsersText} writes; null for `""`, which sets no limits for end
 * users. Throws for anything else.
 */
export function parseEndUsers(text: string): EndUsers | null {
  if (text === "") return null;
  const [, from, ...limits] = SETTING.exec(text) ?? [];
  if (from === undefined) throw new Error("Malformed end users of a key");
  const [requestsPerMinute = 0, tokensPerMinute = 0, budgetDay = 0] = limits
    .map(Number);
  return { from, requestsPerMinute, tokensPerMinute, budgetDay };
}

/** The state of one limit. */
export interface Rate {
  /** Per minute. */
  limit: number;
  remaining: number;
  /** Time until `remaining` is `limit` again without further requests. */
  resetMs: number;
}

/** The tighter of key and owner for each; null where neither has such a limit. */
export interface Rates {
  requests: Rate | null;
  tokens: Rate | null;
}

/** Header names and values, ready for a `Headers` object. */
export type HeaderFields = { [name: string]: string };

const WINDOW_S = 60;
/** Waiting clients are spread over a tenth of their wait, and over a minute at most. */
const SPREAD_SHARE = 0.1;
const SPREAD_MS_MAX = 60_000;
/** Some SDKs ignore longer waits, so jitter must not push one beyond this. */
const OBEYED_MS_MAX = 60_000;
const MS_PER_SECOND = 1_000;
const MS_PER_MINUTE = 60 * MS_PER_SECOND;
const MS_PER_HOUR = 60 * MS_PER_MINUTE;

/**
 * Where the limits stand, for responses 200 and 429: OpenAI's six
 * `x-ratelimit-*` (https://platform.openai.com/docs/guides/rate-limits, 2026) and
 * the IETF's `RateLimit` and `RateLimit-Policy`
 * (draft-ietf-httpapi-ratelimit-headers-11) for requests; that draft has no unit
 * for tokens. A limit that is off has no header.
 *
 * With 600 requests per minute and one just made:
 *
 * ```
 * x-ratelimit-limit-requests: 600
 * x-ratelimit-remaining-requests: 599
 * x-ratelimit-reset-requests: 100ms
 * RateLimit-Policy: "rpm";q=600;w=60
 * RateLimit: "rpm";r=599;t=1
 * ```
 */
export function rateLimitHeaders(rates: Rates): HeaderFields {
  const fields: HeaderFields = {};
  const { requests, tokens } = rates;
  if (requests !== null) {
    fields["x-ratelimit-limit-requests"] = String(requests.limit);
    fields["x-ratelimit-remaining-requests"] = String(requests.remaining);
    fields["x-ratelimit-reset-requests"] = goDuration(requests.resetMs);
    fields["ratelimit-policy"] = `"rpm";q=${requests.limit};w=${WINDOW_S}`;
    fields["ratelimit"] = `"rpm";r=${requests.remaining};t=${
      secondsToMore(requests)
    }`;
  }
  if (tokens !== null) {
    fields["x-ratelimit-limit-tokens"] = String(tokens.limit);
    fields["x-ratelimit-remaining-tokens"] = String(tokens.remaining);
    fields["x-ratelimit-reset-tokens"] = goDuration(tokens.resetMs);
  }
  return fields;
}

/**
 * The wait to tell a client that must wait `waitMs`: with jitter (`random`, 0 ≤ x < 1),
 * so that clients waiting for the same thing, such as the next day's budget, do not
 * all return at once.
 */
export function spreadWaitMs(waitMs: number, random: () => number): number {
  const spreadMs = Math.min(waitMs * SPREAD_SHARE, SPREAD_MS_MAX);
  const toldMs = waitMs + random() * spreadMs;
  return waitMs <= OBEYED_MS_MAX ? Math.min(toldMs, OBEYED_MS_MAX) : toldMs;
}

/**
 * A duration as Go prints it, which is what OpenAI sends: `0s`, `12ms`, `1.5s`,
 * `6m0s`, `1h30m0s`. Fractions of a millisecond are rounded up.
 */
export function goDuration(ms: number): string {
  const whole = Math.max(0, Math.ceil(ms));
  if (whole === 0) return "0s";
  if (whole < MS_PER_SECOND) return `${whole}ms`;
  const hours = Math.floor(whole / MS_PER_HOUR);
  const minutes = Math.floor(whole % MS_PER_HOUR / MS_PER_MINUTE);
  const seconds = `${whole % MS_PER_MINUTE / MS_PER_SECOND}s`;
  if (hours > 0) return `${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${minutes}m${seconds}` : seconds;
}

/** Whole seconds until one more request passes, or until all is back when none is missing. */
function secondsToMore(requests: Rate): number {
  const gapMs = WINDOW_S * MS_PER_SECOND / requests.limit;
  const missing = requests.limit - requests.remaining;
  if (missing <= 0) return 0;
  // `missing` requests come back at even distances, the last one after resetMs.
  const nextMs = requests.resetMs - (missing - 1) * gapMs;
  return Math.max(1, Math.ceil(nextMs / MS_PER_SECOND));
}

import type { Rate, Rates } from "./admit_reply.ts";

/** Header names and values, ready for a `Headers` object. */
export type HeaderFields = { [name: string]: string };

const WINDOW_S = 60;
/** Waiting clients are spread over a tenth of their wait, so that they do not return together. */
const JITTER_SHARE = 0.1;

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
 * How long to wait, for 429 and 503. `Retry-After` is a whole number of seconds,
 * at least 1; `retry-after-ms` is exact. Both include up to a tenth more than
 * `waitMs`, from `random` (0 ≤ x < 1). That no client should sit out the wait for
 * a new day, `x-should-retry: false`, is said with the error's code.
 */
export function retryHeaders(
  waitMs: number,
  random: () => number,
): HeaderFields {
  const jittered = waitMs * (1 + random() * JITTER_SHARE);
  // Some SDKs ignore waits of more than a minute: jitter must not push one over.
  const capMs = Math.max(waitMs, WINDOW_S * 1_000);
  const exactMs = Math.max(1, Math.ceil(Math.min(jittered, capMs)));
  return {
    "retry-after": String(Math.ceil(exactMs / 1_000)),
    "retry-after-ms": String(exactMs),
  };
}

/**
 * A duration as Go prints it, which is what OpenAI sends: `0s`, `12ms`, `1.5s`,
 * `6m0s`, `1h30m0s`. Fractions of a millisecond are rounded up.
 */
export function goDuration(ms: number): string {
  const whole = Math.max(0, Math.ceil(ms));
  if (whole === 0) return "0s";
  if (whole < 1_000) return `${whole}ms`;
  const hours = Math.floor(whole / 3_600_000);
  const minutes = Math.floor(whole / 60_000) % 60;
  const seconds = `${(whole % 60_000) / 1_000}s`;
  if (hours > 0) return `${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${minutes}m${seconds}` : seconds;
}

/** Whole seconds until one more request passes, or until all is back when none is missing. */
function secondsToMore(requests: Rate): number {
  const gapMs = WINDOW_S * 1_000 / requests.limit;
  const missing = requests.limit - requests.remaining;
  if (missing <= 0) return 0;
  // `missing` requests come back at even distances, the last one after resetMs.
  const nextMs = requests.resetMs - (missing - 1) * gapMs;
  return Math.max(1, Math.ceil(nextMs / 1_000));
}

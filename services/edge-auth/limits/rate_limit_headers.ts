/** The headers that state the limits of a key. */
import type { HeaderFields } from "../http/responses.ts";

/** The state of one limit. */
export interface Rate {
  /** Per minute. */
  limit: number;
  remaining: number;
  /** Time until `remaining` reaches `limit` again if there are no further requests. */
  resetMs: number;
}

/** The tighter of key and owner for each; null where neither has such a limit. */
export interface Rates {
  requests: Rate | null;
  tokens: Rate | null;
}

const MS_PER_SECOND = 1_000;
const MS_PER_MINUTE = 60 * MS_PER_SECOND;
const MS_PER_HOUR = 60 * MS_PER_MINUTE;

/**
 * The state of the limits, for responses 200 and 429: OpenAI's six `x-ratelimit-*`
 * (https://platform.openai.com/docs/guides/rate-limits, 2026). A limit that is not
 * set has no header.
 *
 * With 600 requests per minute and one just made:
 *
 * ```
 * x-ratelimit-limit-requests: 600
 * x-ratelimit-remaining-requests: 599
 * x-ratelimit-reset-requests: 100ms
 * ```
 */
export function rateLimitHeaders(rates: Rates): HeaderFields {
  const fields: Record<string, string> = {};
  for (const unit of ["requests", "tokens"] as const) {
    const rate = rates[unit];
    if (rate === null) continue;
    fields[`x-ratelimit-limit-${unit}`] = String(rate.limit);
    fields[`x-ratelimit-remaining-${unit}`] = String(rate.remaining);
    fields[`x-ratelimit-reset-${unit}`] = goDuration(rate.resetMs);
  }
  return fields;
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

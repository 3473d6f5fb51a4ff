/** How long a server asks to be left alone, by the headers of its answers. */

const MS_PER_SECOND = 1_000;
/** A server that says less is asked again after this time all the same. */
const COOL_MS_MIN = 100;
/** A server that says more is asked again, at the cost of one request. */
const COOL_MS_MAX = 600_000;
/** For a limit that is used up, without a word on when it is not. */
const COOL_MS = 1_000;
/** A larger number is a time, and no duration: seconds and milliseconds since 1970. */
const EPOCH_SECONDS_MIN = 1_000_000_000;
const EPOCH_MS_MIN = 1_000_000_000_000;

/** The headers of an answer, by name in lower case. */
export type Fields = ReadonlyMap<string, string>;

/**
 * The wait that a refusal asks for, between 0.1 s and 10 minutes: `retry-after-ms`,
 * `Retry-After` in seconds or as a date, or when the limits that are used up are not
 * any more. Null if it does not say, or says nonsense: 0, a negative number, a time in
 * the past. A date counts from the server's own clock, its `Date`.
 */
export function refusalWaitMs(fields: Fields): number | null {
  const after = fields.get("retry-after") ?? "";
  const waitMs = [
    numberOf(fields.get("retry-after-ms")),
    numberOf(after) * MS_PER_SECOND,
    untilDate(after, fields),
  ].find((ms) => ms > 0);
  return bounded(waitMs) ?? usedUpMs(fields);
}

/**
 * The wait for a limit of which nothing remains: `x-ratelimit-remaining-requests: 0`
 * with `x-ratelimit-reset-requests: 1m30s`, or `anthropic-ratelimit-tokens-remaining`
 * with `…-reset`, the longest of them. Null if all have something left.
 */
export function usedUpMs(fields: Fields): number | null {
  let waitMs: number | null = null;
  for (const [name, value] of fields) {
    if (!name.includes("ratelimit") || !name.includes("remaining")) continue;
    if (value.trim() === "" || Number(value) > 0) continue;
    // Neither a negative number nor a word says how much remains.
    if (Number(value) !== 0) continue;
    const reset = fields.get(name.replace("remaining", "reset")) ?? "";
    const ms = bounded(resetMs(reset, fields)) ?? COOL_MS;
    waitMs = Math.max(waitMs ?? 0, ms);
  }
  return waitMs;
}

/** `20ms`, `1s`, `6m0s`, `1h2m3.5s` (OpenAI), seconds, a Unix time, or a date. */
function resetMs(text: string, fields: Fields): number {
  const number = numberOf(text);
  if (number >= EPOCH_MS_MIN) return number - dateOf(fields);
  if (number >= EPOCH_SECONDS_MIN) {
    return number * MS_PER_SECOND - dateOf(fields);
  }
  if (!Number.isNaN(number)) return number * MS_PER_SECOND;
  const parts = /^(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?$/
    .exec(text.trim());
  if (parts === null) return untilDate(text, fields);
  const [, hours = 0, minutes = 0, seconds = 0, ms = 0] = parts.map(Number)
    .map((part) => Number.isNaN(part) ? 0 : part);
  return ((hours * 60 + minutes) * 60 + seconds) * MS_PER_SECOND + ms;
}

const untilDate = (text: string, fields: Fields): number =>
  Date.parse(text) - dateOf(fields);

const dateOf = (fields: Fields): number => Date.parse(fields.get("date") ?? "");

function numberOf(text = ""): number {
  return /^\s*\d+(\.\d+)?\s*$/.test(text) ? Number(text) : NaN;
}

function bounded(ms: number | undefined): number | null {
  if (ms === undefined || !(ms > 0)) return null;
  return Math.min(Math.max(Math.ceil(ms), COOL_MS_MIN), COOL_MS_MAX);
}

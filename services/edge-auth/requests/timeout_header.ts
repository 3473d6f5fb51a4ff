/**
 * `X-Gateway-Timeout`, by which a client shortens the time that its request may take.
 */
import { ApiError } from "@gateway/shared/openai/error";
import { clip } from "@gateway/shared/process/error_text";
import type { Exchange } from "../http/exchange.ts";

/** The name of the header, as Node writes those that it has received. */
const HEADER = "x-gateway-timeout";
/** Seconds, with up to three decimals. */
const SECONDS = /^\d{1,7}(?:\.\d{1,3})?$/;
const SHOWN_CHARS_MAX = 50;

/**
 * Returns how long a request may take by its header, in ms from its arrival; `Infinity`
 * without the header. The edge's own bound, `REQUEST_TIMEOUT_SECONDS`, holds beside it.
 * Throws the `ApiError` `invalid_value` if the header is no number above 0.
 */
export function readTimeoutMs(headers: Exchange["headers"]): number {
  const text = headers[HEADER]?.toString();
  if (text === undefined) return Infinity;
  const timeoutMs = SECONDS.test(text) ? Number(text) * 1_000 : NaN;
  if (timeoutMs > 0) return timeoutMs;
  throw new ApiError(
    "invalid_value",
    "Invalid header 'X-Gateway-Timeout': expected a number of seconds above 0, " +
      `such as 30 or 1.5, but got '${clip(text, SHOWN_CHARS_MAX)}'.`,
  );
}

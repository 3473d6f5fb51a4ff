/** `X-Gateway-Priority`, by which a client lets its other requests go first. */
import { ApiError } from "@gateway/shared/openai/error";
import { clip } from "@gateway/shared/process/error_text";
import type { Exchange } from "../http/exchange.ts";

/** The name of the header, as Node writes those that it has received. */
const HEADER = "x-gateway-priority";
const SHOWN_CHARS_MAX = 50;

/**
 * Whether a request waits behind the others of its account, if it has to wait: by
 * `batch`; `normal` is the same as no header. Throws the `ApiError` `invalid_value` for
 * anything else: nobody goes before others.
 */
export function readIsBatch(headers: Exchange["headers"]): boolean {
  const text = headers[HEADER]?.toString();
  if (text === undefined || text === "normal") return false;
  if (text === "batch") return true;
  throw new ApiError(
    "invalid_value",
    "Invalid header 'X-Gateway-Priority': expected 'batch' or 'normal', " +
      `but got '${clip(text, SHOWN_CHARS_MAX)}'.`,
  );
}

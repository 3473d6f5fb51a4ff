/**
 * `Idempotency-Key` and `X-Gateway-Keep`, by which a client asks that its answer is
 * kept, and `Last-Event-ID`, by which it reads on.
 */
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { clip } from "@gateway/shared/process/error_text";
import type { Exchange } from "../http/exchange.ts";

/** What a client says about the keeping of its answer. */
export interface KeepWish {
  /** The client's idempotency key; null: it has sent none. */
  readonly idempotencyKey: string | null;
  /** For how long after its end, in seconds; 0: not at all; null: it does not say. */
  readonly seconds: number | null;
}

const IDEMPOTENCY_KEY = "idempotency-key";
const KEEP = "x-gateway-keep";
const LAST_EVENT = "last-event-id";
/** Printable ASCII; header values have no spaces at their ends. */
const PRINTABLE = /^[\x20-\x7e]+$/;
const SECONDS = /^\d{1,5}$/;
/** Enough for any answer, and exact as a number. */
const EVENT_NUMBER = /^\d{1,15}$/;
const SHOWN_CHARS_MAX = 50;

/**
 * Whether, and for how long, an answer is to be kept; null: the client does not say, so
 * its key decides. Throws the `ApiError` `invalid_value` of a malformed header.
 */
export function readKeep(headers: Exchange["headers"]): KeepWish | null {
  const key = headers[IDEMPOTENCY_KEY]?.toString();
  const keep = headers[KEEP]?.toString();
  if (key === undefined && keep === undefined) return null;
  const seconds = keep === undefined ? null : readSeconds(keep);
  if (key !== undefined && seconds === 0) throw contradiction();
  return {
    idempotencyKey: key === undefined ? null : readIdempotencyKey(key),
    seconds,
  };
}

/** Whether a client asks that its answer is kept. */
export const asksToKeep = (wish: KeepWish | null | undefined): boolean =>
  wish !== null && wish !== undefined && wish.seconds !== 0;

function contradiction(): ApiError {
  return new ApiError(
    "invalid_value",
    "Invalid header 'X-Gateway-Keep': 0 means that the answer is not kept, but " +
      "'Idempotency-Key' needs it to be: send one of them only.",
  );
}

function readIdempotencyKey(text: string): string {
  const { idempotencyKeyCharsMax: charsMax } = KEPT_LIMITS;
  if (PRINTABLE.test(text) && text.length <= charsMax) return text;
  throw new ApiError(
    "invalid_value",
    `Invalid header 'Idempotency-Key': expected 1 to ${charsMax} printable ` +
      `ASCII characters, but got ${text.length} characters.`,
  );
}

function readSeconds(text: string): number {
  const seconds = SECONDS.test(text) ? Number(text) : Infinity;
  if (seconds <= KEPT_LIMITS.secondsMax) return seconds;
  throw new ApiError(
    "invalid_value",
    "Invalid header 'X-Gateway-Keep': expected a whole number of seconds " +
      `from 0 to ${KEPT_LIMITS.secondsMax}, but got ` +
      `'${clip(text, SHOWN_CHARS_MAX)}'.`,
  );
}

/**
 * After which event a client wants to read on: by its header or, where that is absent,
 * by `?after=`; 0: from the beginning. An empty one says that it knows none. Throws the
 * `ApiError` `invalid_value`.
 */
export function readAfter(
  { headers, query }: Pick<Exchange, "headers" | "query">,
): number {
  const header = headers[LAST_EVENT]?.toString();
  const text = header ?? new URLSearchParams(query).get("after") ?? "";
  if (text === "") return 0;
  if (EVENT_NUMBER.test(text)) return Number(text);
  const what = header === undefined
    ? "parameter 'after'"
    : "header 'Last-Event-ID'";
  throw new ApiError(
    "invalid_value",
    `Invalid ${what}: expected the id of an event, which is a number, but ` +
      `got '${clip(text, SHOWN_CHARS_MAX)}'.`,
  );
}

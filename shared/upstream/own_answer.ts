/** What a client gets of the answer by which a model server has refused its request. */
import { answerHeaders } from "../forward/passed_headers.ts";
import type { OwnAnswer } from "../openai/error.ts";
import { type ResponseHead, statedWaitMs } from "./http/framing.ts";
import { isJsonObject, type JsonObject } from "./json.ts";

/**
 * Makes texts of model servers safe to show to callers, in linear time: a match starts
 * only where it can be whole.
 */
export type Redact = (text: string) => string;

/**
 * Statuses whose plain text is about the request, not about the path as that of 404 may
 * be.
 */
const PLAIN_STATUSES = [400, 413, 422];
const PLAIN_CHARS_MAX = 500;
const MS_PER_SECOND = 1_000;

/**
 * The plain text by which a server refuses a request that it could not read, as web
 * frameworks of Rust and Go do; `""` if the answer is something else, long, or a page.
 */
export function plainRefusal(
  { status, contentType }: Pick<ResponseHead, "status" | "contentType">,
  text: string,
): string {
  const isKnown = PLAIN_STATUSES.includes(status) &&
    contentType === "text/plain" && text.length <= PLAIN_CHARS_MAX &&
    !text.trimStart().startsWith("<");
  return isKnown ? text.trim() : "";
}

/** The answer for the client, without secrets. `json` is what `text` says, if it is JSON. */
export function ownAnswer(
  { status, contentType, fields }: ResponseHead,
  { text, json, scrub }: { text: string; json: unknown; scrub: Redact },
): OwnAnswer {
  return {
    status,
    contentType,
    body: isJsonObject(json) ? scrubbed(text, json, scrub) : scrub(text),
    headers: keptHeaders(fields),
  };
}

/** A body in JSON without secrets: unchanged if it has none. */
function scrubbed(text: string, body: JsonObject, scrub: Redact): string {
  let hasSecrets = false;
  const clean = JSON.stringify(body, (_, value: unknown) => {
    if (typeof value !== "string") return value;
    const safe = scrub(value);
    if (safe !== value) hasSecrets = true;
    return safe;
  });
  return hasSecrets ? clean : text;
}

/** A date to wait for becomes seconds, which all clients read. */
function keptHeaders(fields: ResponseHead["fields"]): Record<string, string> {
  const headers = answerHeaders(fields);
  const waitMs = statedWaitMs(fields);
  const isDate = Number.isNaN(Number(headers["retry-after"] ?? 0));
  if (isDate && waitMs !== undefined) {
    headers["retry-after"] = `${Math.ceil(waitMs / MS_PER_SECOND)}`;
  }
  return headers;
}

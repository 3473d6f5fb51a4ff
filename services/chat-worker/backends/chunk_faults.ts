/** Faults that chunks show, or the lack of them. */
import type { Usage } from "@gateway/shared/openai/completion";
import { UpstreamError } from "@gateway/shared/upstream/http/errors";
import type { JsonObject } from "@gateway/shared/upstream/json";

/**
 * Whether a chunk reports an error. `error: null` is none: some servers always send it.
 */
export function isErrorChunk(chunk: JsonObject): boolean {
  if (chunk.error !== undefined && chunk.error !== null) return true;
  return chunk.object === "error" ||
    (chunk.choices === undefined && chunk.usage === undefined &&
      typeof chunk.message === "string");
}

/**
 * The error of a whole response that has fewer choices than were requested: its server
 * does not support that number. `usage` is what it cost all the same.
 */
export function tooFewChoices(
  { count, n, usage }: { count: number; n: number; usage: Usage },
): UpstreamError {
  const choices = count === 1 ? "one choice" : `${count} choices`;
  const message = `The server of this model returns ${choices} per request, ` +
    `but 'n' is ${n}.`;
  return new UpstreamError("request", {
    code: "unsupported_value",
    message,
    param: "n",
    usage,
  });
}

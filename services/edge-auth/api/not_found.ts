/** The errors of paths and methods that the API does not have. */
import { ApiError } from "@gateway/shared/openai/error";
import type { Exchange } from "../http/exchange.ts";
import type { Route } from "./route.ts";

const PATH_CHARS_MAX = 200;

/** The beginning of a path, as errors and the log show it. */
export const shownPath = ({ path }: Pick<Exchange, "path">): string =>
  path.slice(0, PATH_CHARS_MAX);

/**
 * 404 in OpenAI's words. The usual cause is another API of an SDK, or a base URL
 * without `/v1`.
 */
export function notFound(exchange: Exchange, hint: string): ApiError {
  const url = `${exchange.method} ${shownPath(exchange)}`;
  return new ApiError("not_found", `Invalid URL (${url}). ${hint}`);
}

/** 405 with the methods that the path has. */
export function notAllowed(exchange: Exchange, { allow }: Route): ApiError {
  const what = `Not allowed to ${exchange.method} on ${shownPath(exchange)}.`;
  const message = `${what} Allowed: ${allow}.`;
  return new ApiError("method_not_allowed", message, { headers: { allow } });
}

/**
 * Cross-origin calls. Off by default, because an API key is a secret of a server
 * and has no business in a browser. An operator whose pages call the gateway with
 * keys of their own users lists the origins of those pages.
 */
import type { MiddlewareHandler } from "hono";
import type { EdgeEnv } from "./edge_env.ts";

/** A browser asks again after this long. */
const MAX_AGE_SECONDS = 600;
const REQUEST_HEADERS_CHARS_MAX = 1_024;
/** What a script may read; without this it sees neither waits nor request ids. */
const EXPOSED = [
  "x-request-id",
  "retry-after",
  "retry-after-ms",
  "x-should-retry",
  "x-ratelimit-limit-requests",
  "x-ratelimit-remaining-requests",
  "x-ratelimit-reset-requests",
  "x-ratelimit-limit-tokens",
  "x-ratelimit-remaining-tokens",
  "x-ratelimit-reset-tokens",
  "ratelimit",
  "ratelimit-policy",
].join(", ");

/**
 * Lets pages of these origins call the API and read its answers, errors too.
 * No credentials of the browser: a call carries its key in `Authorization`, which
 * no wildcard covers, so the headers that were asked for are repeated.
 */
export function cors(origins: readonly string[]): MiddlewareHandler<EdgeEnv> {
  const allowed = new Set(origins);
  return async (c, next) => {
    const request = c.req.raw.headers;
    const origin = request.get("origin");
    await next();
    const { headers } = c.res;
    headers.append("vary", "origin");
    if (origin === null || !allowed.has(origin)) return;
    headers.set("access-control-allow-origin", origin);
    if (!request.has("access-control-request-method")) {
      headers.set("access-control-expose-headers", EXPOSED);
      return;
    }
    const asked = request.get("access-control-request-headers") ?? "";
    headers.set("access-control-allow-methods", "GET, HEAD, POST, OPTIONS");
    headers.set("access-control-max-age", String(MAX_AGE_SECONDS));
    if (asked !== "" && asked.length <= REQUEST_HEADERS_CHARS_MAX) {
      headers.set("access-control-allow-headers", asked);
    }
  };
}

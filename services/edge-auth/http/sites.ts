/** Names that the service answers for, and pages that may call it. */
import type { MiddlewareHandler } from "hono";
import { ApiError } from "@gateway/shared/openai/error";

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
 * Cross-origin calls, off by default: an API key is a secret of a server and has no
 * business in a browser. Lets pages of these origins call the API and read its answers, errors too.
 * No credentials of the browser: a call carries its key in `Authorization`, which
 * no wildcard covers, so the headers that were asked for are repeated.
 */
export function cors(origins: readonly string[]): MiddlewareHandler {
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

/**
 * Refuses requests for other hosts with 421: by the `Host` header, and by the
 * target where that is a whole URL. Without a list every name will do. A name in
 * the list without a port stands for all ports.
 */
export function allowHosts(
  hosts: readonly string[],
): MiddlewareHandler {
  const allowed = new Set(hosts.map((host) => host.toLowerCase()));
  const isAllowed = (host: string) =>
    allowed.has(host) || allowed.has(host.replace(/:\d+$/, ""));
  return async (c, next) => {
    const named = c.req.raw.headers.get("host")?.toLowerCase() ?? "";
    const target = URL.parse(c.req.url)?.host ?? "";
    if (!isAllowed(named) || !isAllowed(target)) {
      throw new ApiError(
        "misdirected_request",
        "This server does not answer for the host of this request.",
      );
    }
    await next();
  };
}

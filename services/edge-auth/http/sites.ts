/** Names that the service answers for, and pages that may call it. */
import { ApiError } from "@gateway/shared/openai/error";
import type { Exchange } from "./server.ts";

/** A browser asks again after this long. */
const MAX_AGE_SECONDS = 600;
const REQUEST_HEADERS_CHARS_MAX = 1_024;
/** What a script may read; without this it sees neither waits nor request ids. */
const EXPOSED = "x-request-id, retry-after, retry-after-ms, x-should-retry, " +
  "x-ratelimit-limit-requests, " +
  "x-ratelimit-remaining-requests, x-ratelimit-reset-requests, " +
  "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, " +
  "x-ratelimit-reset-tokens";

/**
 * Cross-origin calls, off by default: an API key is a secret of a server and has no
 * business in a browser. Lets pages of these origins call the API and read its answers, errors too.
 * No credentials of the browser: a call carries its key in `Authorization`, which
 * no wildcard covers, so the headers that were asked for are repeated.
 */
export function allowOrigins(
  origins: readonly string[],
  { headers, response }: Exchange,
): void {
  if (origins.length === 0) return;
  response.setHeader("vary", "origin");
  const origin = headers.get("origin");
  if (origin === undefined || !origins.includes(origin)) return;
  response.setHeader("access-control-allow-origin", origin);
  if (!headers.has("access-control-request-method")) {
    response.setHeader("access-control-expose-headers", EXPOSED);
    return;
  }
  const asked = headers.get("access-control-request-headers") ?? "";
  response.setHeader(
    "access-control-allow-methods",
    "GET, HEAD, POST, OPTIONS",
  );
  response.setHeader("access-control-max-age", String(MAX_AGE_SECONDS));
  if (asked !== "" && asked.length <= REQUEST_HEADERS_CHARS_MAX) {
    response.setHeader("access-control-allow-headers", asked);
  }
}

/**
 * Refuses requests for other hosts with 421: by the `Host` header, and by the
 * target where that is a whole URL. Without a list every name will do. A name in
 * the list without a port stands for all ports.
 */
export function requireHost(
  hosts: readonly string[],
  { host, headers }: Exchange,
): void {
  const isAllowed = (name: string) =>
    hosts.some((allowed) =>
      [name, name.replace(/:\d+$/, "")].includes(allowed.toLowerCase())
    );
  const named = headers.get("host")?.toLowerCase() ?? "";
  if (hosts.length === 0 || (isAllowed(host) && isAllowed(named))) return;
  throw new ApiError(
    "misdirected_request",
    "This server does not answer for the host of this request.",
  );
}

/** The host names of the service, and the web pages that may call it. */
import { ApiError } from "@gateway/shared/openai/error";
import type { Exchange } from "./server.ts";

/** How long a browser may remember the answer to a preflight request. */
const MAX_AGE_SECONDS = 600;
/**
 * Lets web pages of these origins call the API and read its answers, errors
 * included. Off by default: an API key is a server-side secret. The browser's own
 * credentials are not involved; the key is in `Authorization`, which a wildcard does
 * not cover, so the requested headers are echoed.
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
    response.setHeader("access-control-expose-headers", "*");
    return;
  }
  const requested = headers.get("access-control-request-headers") ?? "";
  response.setHeader(
    "access-control-allow-methods",
    "GET, HEAD, POST, OPTIONS",
  );
  response.setHeader("access-control-max-age", String(MAX_AGE_SECONDS));
  if (requested !== "") {
    response.setHeader("access-control-allow-headers", requested);
  }
}

/**
 * Refuses requests for other hosts with 421. Checks the `Host` header, and the target
 * if it is an absolute URL. An empty list allows every name; a name without a port
 * allows all ports.
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

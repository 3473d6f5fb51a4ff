/** The console as an HTTP server: its metrics, and a log line per request. */

import type { ClientAddress } from "@gateway/shared/process/client_address";
import type { Log } from "@gateway/shared/process/log";
import { counter, type MetricRegistry } from "@gateway/shared/process/metrics";
import type { Hono } from "hono";
import type { ConsoleEnv } from "./context.ts";

/** The metrics of the console, for `/metrics` of the operations port. */
export const CONSOLE_METRICS = {
  responses: counter("gateway_console_responses_total", {
    help: "Responses of the console by status class: `2xx` to `5xx`.",
    labels: ["class"],
  }),
} as const;

/** Answers a request of `Deno.serve`. */
export type ServeHandler = (
  request: Request,
  info: Deno.ServeHandlerInfo<Deno.NetAddr>,
) => Promise<Response>;

/** Dependencies of a handler besides the console. */
interface HandlerOptions {
  clientAddress: ClientAddress;
  log: Log;
  registry: MetricRegistry;
}

/**
 * Serves the console: finds the client's address, counts the response and logs the
 * request, unless it got a file of the console.
 */
export function createHandler(
  app: Hono<ConsoleEnv>,
  { clientAddress, log, registry }: HandlerOptions,
): ServeHandler {
  const { responses } = registry.record(CONSOLE_METRICS);
  // Start at zero, so that a rate can be computed.
  for (const name of ["2xx", "3xx", "4xx", "5xx"]) responses.with(name).add(0);
  return async (request, info) => {
    const startMs = performance.now();
    const remoteIp = clientAddress(
      info.remoteAddr.hostname,
      request.headers.get("x-forwarded-for"),
    );
    const response = await app.fetch(request, { remoteIp });
    responses.with(`${Math.floor(response.status / 100)}xx`).add();
    const path = loggedPath(request.url);
    if (path.startsWith("/assets/") && response.ok) return response;
    log.info("request", {
      requestId: response.headers.get("x-request-id"),
      clientAddress: remoteIp,
      method: request.method,
      path,
      status: response.status,
      durationMs: Math.round(performance.now() - startMs),
    });
    return response;
  };
}

/**
 * The path without secrets: no query, no secret of a link. Empty when the URL is
 * malformed.
 */
function loggedPath(url: string): string {
  const path = URL.canParse(url) ? new URL(url).pathname : "";
  return path.replace(/^\/link\/.*/s, "/link/…").slice(0, 200);
}

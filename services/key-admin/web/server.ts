import type { ClientAddress } from "@gateway/shared/process/client_address";
import type { Log } from "@gateway/shared/process/log";
import type { Hono } from "hono";
import type { ConsoleEnv } from "./context.ts";
import type { Metrics } from "./metrics.ts";

/** What `Deno.serve` calls. */
export type Handler = (
  request: Request,
  info: Deno.ServeHandlerInfo<Deno.NetAddr>,
) => Response | Promise<Response>;

/** What the handler needs beside the console. */
export interface HandlerOptions {
  clientAddress: ClientAddress;
  log: Log;
  metrics: Metrics;
}

/** The console behind a socket: knows the client's address, counts, and logs a line per request. */
export function createHandler(
  app: Hono<ConsoleEnv>,
  { clientAddress, log, metrics }: HandlerOptions,
): Handler {
  return async (request, info) => {
    const startMs = performance.now();
    const remoteIp = clientAddress(
      info.remoteAddr.hostname,
      request.headers.get("x-forwarded-for"),
    );
    const response = await app.fetch(request, { remoteIp });
    metrics.count(response.status);
    log.info("request", {
      requestId: response.headers.get("x-request-id"),
      method: request.method,
      path: loggedPath(request.url),
      status: response.status,
      durationMs: Math.round(performance.now() - startMs),
      ip: remoteIp,
    });
    return response;
  };
}

/** The path without what opens something: no query, no secret of a link. Empty when the address makes no sense. */
function loggedPath(url: string): string {
  const path = URL.canParse(url) ? new URL(url).pathname : "";
  return path.replace(/^\/link\/.*/s, "/link/…").slice(0, 200);
}

/**
 * Health, readiness and metrics of a service, on a separate port that is never public.
 */
import { type GracefulServer, serve } from "./serve.ts";

export interface OpsServerOptions {
  hostname: string;
  port: number;
  /** What keeps the service from its work right now; empty: nothing, it is ready. */
  notReady: () => string[];
  /** The metrics in Prometheus' text format. */
  metrics: () => string;
}

const TEXT = { "content-type": "text/plain; charset=utf-8" };
const PROMETHEUS = {
  "content-type": "text/plain; version=0.0.4; charset=utf-8",
};

/** Serves `/healthz`, `/readyz` and `/metrics`. */
export function serveOps(options: OpsServerOptions): GracefulServer {
  return serve({
    hostname: options.hostname,
    port: options.port,
    onError: () => new Response("fault\n", { status: 500, headers: TEXT }),
    handler: (request) => {
      switch (new URL(request.url).pathname) {
        case "/healthz":
          return new Response("ok\n", { headers: TEXT });
        case "/readyz":
          return readiness(options.notReady());
        case "/metrics":
          return new Response(options.metrics(), { headers: PROMETHEUS });
        default:
          return new Response("not found\n", { status: 404, headers: TEXT });
      }
    },
  });
}

function readiness(reasons: string[]): Response {
  if (reasons.length === 0) return new Response("ready\n", { headers: TEXT });
  return new Response(`not ready: ${reasons.join(", ")}\n`, {
    status: 503,
    headers: TEXT,
  });
}

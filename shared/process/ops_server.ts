/**
 * Health, readiness and metrics of a service, on a separate port that is never public.
 */
import { monotonicNow, wallNow } from "./clock.ts";
import type { MetricRegistry } from "./metrics.ts";
import { observeProcess } from "./own_metrics.ts";
import { serve } from "./serve.ts";

export interface OpsServerOptions {
  hostname: string;
  port: number;
  /** The reasons why the service is not ready; empty if it is. */
  notReady: () => string[];
  /** Metrics of the service; those of the process are added. */
  registry: MetricRegistry;
}

/** A running server. */
export interface OpsServer {
  readonly port: number;
  stop(): Promise<void>;
}

const TEXT = { "content-type": "text/plain; charset=utf-8" };
const PROMETHEUS = {
  "content-type": "text/plain; version=0.0.4; charset=utf-8",
};

/** Serves `/healthz`, `/readyz` and `/metrics`. Call it when the process starts. */
export function serveOps(options: OpsServerOptions): OpsServer {
  const { hostname, port, notReady, registry } = options;
  const stopObserving = observeProcess(registry, {
    now: monotonicNow,
    startedAtMs: wallNow(),
    notReady,
  });
  const server = serve({
    hostname,
    port,
    onError: () => new Response("fault\n", { status: 500, headers: TEXT }),
    handler: (request) => {
      switch (new URL(request.url).pathname) {
        case "/healthz":
          return new Response("ok\n", { headers: TEXT });
        case "/readyz":
          return readiness(notReady());
        case "/metrics":
          return new Response(registry.text(), { headers: PROMETHEUS });
        default:
          return new Response("not found\n", { status: 404, headers: TEXT });
      }
    },
  });
  return {
    port: server.port,
    stop: async () => {
      stopObserving();
      await server.stop({ graceMs: 0, lastWordMs: 0 });
    },
  };
}

function readiness(reasons: string[]): Response {
  if (reasons.length === 0) return new Response("ready\n", { headers: TEXT });
  return new Response(`not ready: ${reasons.join(", ")}\n`, {
    status: 503,
    headers: TEXT,
  });
}

/** Health, readiness and metrics of a service, on a separate port that is never public. */
import { VERSION } from "../version.ts";
import type { MetricRegistry } from "./metrics.ts";
import { observeProcess } from "./own_metrics.ts";
import { serve } from "./serve.ts";

const TEXT = "text/plain; charset=utf-8";
const PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8";

/** Serves `/healthz`, `/readyz` and `/metrics`. Call it when the process starts. */
export function serveOps(
  { hostname, port, notReady, registry }: {
    hostname: string;
    port: number;
    /** The reasons why the service is not ready; empty if it is. */
    notReady: () => string[];
    /** Metrics of the service; those of the process are added. */
    registry: MetricRegistry;
  },
) {
  const stopObserving = observeProcess(registry, notReady);
  const server = serve({
    hostname,
    port,
    onError: () => text("fault", 500),
    handler: (request) => {
      switch (new URL(request.url).pathname) {
        case "/healthz":
          return text(`ok ${VERSION}`);
        case "/readyz": {
          const reasons = notReady().join(", ");
          return reasons ? text(`not ready: ${reasons}`, 503) : text("ready");
        }
        case "/metrics":
          return text(registry.text(), 200, PROMETHEUS);
        default:
          return text("not found", 404);
      }
    },
  });
  return {
    port: server.port,
    stop: async (): Promise<void> => {
      stopObserving();
      await server.stop({ graceMs: 0, abortMs: 0 });
    },
  };
}

function text(lines: string, status = 200, type = TEXT): Response {
  const headers = { "content-type": type };
  return new Response(`${lines}\n`, { status, headers });
}

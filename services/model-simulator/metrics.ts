/** What the simulator exports for Prometheus. A request is counted once, at its end. */
import type { MetricRegistry } from "@gateway/shared/process/metrics";
import { counter, gauge } from "@gateway/shared/process/metrics";
import type { SeenRequest, Simulator } from "./simulator.ts";

/** Every metric of the simulator beside those that all services have. */
export const SIMULATOR_METRICS = {
  requests: counter("gateway_simulator_requests_total", {
    help:
      "Chat completions by how they ended: `complete`, `refused`, `broken` (a fault on request), `left` (the client went away).",
    labels: ["outcome"],
  }),
  tokens: counter("gateway_simulator_tokens_total", {
    help: "Completion tokens made, cut answers included.",
    labels: [],
  }),
  running: gauge("gateway_simulator_running", {
    help: "Chat completions that run now.",
    labels: [],
  }),
} as const;

/** Returns what counts a request. */
export function createSimulatorMetrics(
  registry: MetricRegistry,
  simulator: () => Simulator,
): (request: SeenRequest) => void {
  const requests = registry.counter(SIMULATOR_METRICS.requests);
  const tokens = registry.counter(SIMULATOR_METRICS.tokens);
  registry.gauge(
    SIMULATOR_METRICS.running,
    () => [[[], simulator().running.size]],
  );
  return (request) =>
    void request.ended.then((outcome) => {
      requests.with(outcome).add();
      tokens.with().add(request.tokens);
    });
}

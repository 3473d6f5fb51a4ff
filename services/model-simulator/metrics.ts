/** The Prometheus metrics of the simulator. A request is counted once, at its end. */
import type { MetricRegistry } from "@gateway/shared/process/metrics";
import { counter, gauge } from "@gateway/shared/process/metrics";
import type { SeenRequest } from "./simulator.ts";

/** Every metric of the simulator except those that all services have. */
export const SIMULATOR_METRICS = {
  requests: counter("gateway_simulator_requests_total", {
    help:
      "Chat completions by outcome: `complete`, `refused`, `broken` (a requested fault), `left` (the client disconnected).",
    labels: ["outcome"],
  }),
  tokens: counter("gateway_simulator_tokens_total", {
    help: "Completion tokens generated, including cut answers.",
    labels: [],
  }),
  running: gauge("gateway_simulator_running", {
    help: "Chat completions that are running.",
    labels: [],
  }),
} as const;

/** Returns the function that counts a request. */
export function createSimulatorMetrics(
  registry: MetricRegistry,
  running: () => number,
): (request: SeenRequest) => void {
  const requests = registry.counter(SIMULATOR_METRICS.requests);
  const tokens = registry.counter(SIMULATOR_METRICS.tokens).with();
  registry.gauge(SIMULATOR_METRICS.running, () => [[[], running()]]);
  return (request) =>
    void request.ended.then((outcome) => {
      requests.with(outcome).add();
      tokens.add(request.tokens);
    });
}

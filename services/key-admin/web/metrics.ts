/** What the console exports for Prometheus. */
import type { MetricRegistry } from "@gateway/shared/metrics/registry";
import { counter } from "@gateway/shared/metrics/table";

/** Every metric of key-admin beside those that all services have. */
export const CONSOLE_METRICS = {
  responses: counter("gateway_console_responses_total", {
    help: "Answers of the console by class of status: `2xx` to `5xx`.",
    labels: ["class"],
  }),
} as const;

/** Counts what the console does. */
export interface Metrics {
  /** An answer with this status went out. */
  count(status: number): void;
}

const CLASSES = ["2xx", "3xx", "4xx", "5xx"];

/** Makes the counters of {@link CONSOLE_METRICS}. */
export function createMetrics(registry: MetricRegistry): Metrics {
  const responses = registry.counter(CONSOLE_METRICS.responses);
  // A rate needs a zero to rise from.
  for (const name of CLASSES) responses.with(name).add(0);
  return {
    count: (status) => responses.with(`${Math.floor(status / 100)}xx`).add(),
  };
}

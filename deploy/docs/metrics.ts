/** Every metric of the product, by the services that export it. */
import {
  BUS_METRICS,
  PROCESS_METRICS,
  REDIS_METRICS,
} from "@gateway/shared/process/own_metrics";
import type { MetricSpec, MetricTable } from "@gateway/shared/process/metrics";
import { WORKER_METRICS } from "@gateway/shared/worker/metrics";
import { EDGE_METRICS } from "../../services/edge-auth/metrics.ts";
import type { ServiceName } from "../up/plan.ts";
import { CONSOLE_METRICS } from "../../services/key-admin/web/server.ts";

const WORKERS = ["chat-worker", "media-worker"] as const;

/** In the order of the documentation. */
export const METRIC_TABLES: readonly {
  services: readonly ServiceName[];
  table: MetricTable;
}[] = [
  { services: ["edge-auth"], table: EDGE_METRICS },
  { services: WORKERS, table: WORKER_METRICS },
  { services: ["key-admin"], table: CONSOLE_METRICS },
  { services: ["edge-auth", ...WORKERS], table: BUS_METRICS },
  { services: ["edge-auth", "key-admin"], table: REDIS_METRICS },
  {
    services: ["edge-auth", ...WORKERS, "key-admin", "model-simulator"],
    table: PROCESS_METRICS,
  },
];

export function metricRows(): string[][] {
  return METRIC_TABLES.flatMap(({ services, table }) =>
    Object.values(table).map(({ name, type, labels, help }: MetricSpec) => [
      `\`${name}\``,
      type,
      labels.map((label) => `\`${label}\``).join(", ") || "–",
      services.join(", "),
      help,
    ])
  );
}

/** Every metric of the product, by the services that export it, and `docs/metrics.md`. */
import {
  BUS_METRICS,
  PROCESS_METRICS,
  REDIS_METRICS,
} from "@gateway/shared/process/own_metrics";
import type { MetricSpec, MetricTable } from "@gateway/shared/process/metrics";
import { WORKER_METRICS } from "../../services/chat-worker/metrics.ts";
import { EDGE_METRICS } from "../../services/edge-auth/metrics.ts";
import { CONSOLE_METRICS } from "../../services/key-admin/web/server.ts";

export type ServiceName =
  | "edge-auth"
  | "chat-worker"
  | "key-admin"
  | "model-simulator";

/** A table and the services that export it. */
export interface ServiceMetrics {
  services: readonly ServiceName[];
  table: MetricTable;
}

/** In the order of the documentation. */
export const METRIC_TABLES: readonly ServiceMetrics[] = [
  { services: ["edge-auth"], table: EDGE_METRICS },
  { services: ["chat-worker"], table: WORKER_METRICS },
  { services: ["key-admin"], table: CONSOLE_METRICS },
  { services: ["edge-auth", "chat-worker"], table: BUS_METRICS },
  { services: ["edge-auth", "key-admin"], table: REDIS_METRICS },
  {
    services: ["edge-auth", "chat-worker", "key-admin", "model-simulator"],
    table: PROCESS_METRICS,
  },
];

/** The metrics that a service exports. */
export function metricsOf(service: ServiceName): MetricSpec[] {
  return METRIC_TABLES.filter(({ services }) => services.includes(service))
    .flatMap(({ table }) => Object.values(table));
}

/** Every metric once. */
export function allMetrics(): MetricSpec[] {
  return METRIC_TABLES.flatMap(({ table }) => Object.values(table));
}

/** Where the page is. */
export const METRICS_PAGE: URL = new URL(
  "../../docs/metrics.md",
  import.meta.url,
);

const INTRODUCTION = `# Metrics

Every service answers \`GET /metrics\` on its operations port (\`OPS_PORT\`) in
the text format of Prometheus. \`deno task docs\` generates this page from the
code. Times are in seconds, and a request is counted when it ends. Labels never
contain a key, an owner or a caller's text; \`model\` and \`backend\` are names
from the models file.

For what to do when a metric looks wrong, see [alerts.md](alerts.md).

`;

/** The text of the page, as \`deno fmt\` leaves it. */
export async function metricsPage(): Promise<string> {
  const rows = METRIC_TABLES.flatMap(({ services, table }) =>
    Object.values(table).map((spec) => row(spec, services))
  );
  return await formatted(
    [
      INTRODUCTION + "| Metric | Type | Labels | Exported by | Meaning |",
      "| --- | --- | --- | --- | --- |",
      ...rows,
      "",
    ].join("\n"),
    "md",
  );
}

function row(spec: MetricSpec, services: readonly string[]): string {
  const labels = spec.labels.map((name) => `\`${name}\``).join(", ");
  const cells = [
    `\`${spec.name}\``,
    spec.type,
    labels === "" ? "–" : labels,
    services.join(", "),
    spec.help,
  ];
  return `| ${cells.join(" | ")} |`;
}

/** A text of this kind, formatted by `deno fmt`. */
export async function formatted(
  text: string,
  kind: "md" | "json",
): Promise<string> {
  const formatter = new Deno.Command(Deno.execPath(), {
    args: ["fmt", `--ext=${kind}`, "-"],
    stdin: "piped",
    stdout: "piped",
  }).spawn();
  const writer = formatter.stdin.getWriter();
  await writer.write(new TextEncoder().encode(text));
  await writer.close();
  const { success, stdout } = await formatter.output();
  if (!success) throw new Error(`Cannot format ${kind}`);
  return new TextDecoder().decode(stdout);
}

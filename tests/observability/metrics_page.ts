/** `docs/metrics.md`, generated from the metric tables of the services. */
import type { MetricSpec } from "@gateway/shared/process/metrics";
import { METRIC_TABLES } from "./metric_tables.ts";

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

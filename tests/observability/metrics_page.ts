/** `docs/metrics.md`, made from the tables that the services export their metrics by. */
import type { MetricSpec } from "@gateway/shared/process/metrics";
import { METRIC_TABLES } from "./metric_tables.ts";

/** Where the page is. */
export const METRICS_PAGE: URL = new URL(
  "../../docs/metrics.md",
  import.meta.url,
);

const INTRODUCTION = `# Metrics

Every service answers \`GET /metrics\` on its ops port (\`OPS_PORT\`) in the text
format of Prometheus. This page is made from the code by \`deno task docs\`. A
time is in seconds, and a request is counted when it is over. Labels never hold
a key, an owner or anything a caller wrote; \`model\` and \`backend\` are names
of the models file.

What to do when one of them looks wrong: [alerts.md](alerts.md).

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

/** What `deno fmt` makes of a text of this kind. */
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

/** Reads the dashboard and the alerts. */
import { readSource } from "../support/source_files.ts";

const dashboard: { panels: { targets?: { expr: string }[] }[] } = JSON.parse(
  readSource("deploy/observability/grafana/dashboards/gateway.json"),
);
/** Every expression of the dashboard. */
export const EXPRESSIONS: readonly string[] = dashboard.panels
  .flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));

/** Every rule of `alerts.yml`, which is simple enough to read without a YAML parser. */
export const ALERTS = readSource("deploy/observability/alerts.yml")
  .split("- alert: ").slice(1).map((rule) => ({
    name: rule.split("\n")[0] ?? "",
    expression: scalar(rule, "expr"),
    severity: /severity: (\w+)/.exec(rule)?.[1] ?? "",
    runbook: scalar(rule, "runbook"),
  }));

/** The value in a line `name: value`, as the formatter leaves it. */
function scalar(rule: string, name: string): string {
  const value = new RegExp(`^ +${name}: (.*)$`, "m").exec(rule)?.[1] ?? "";
  if (value.startsWith("'")) return value.slice(1, -1).replaceAll("''", "'");
  return value.startsWith('"') ? JSON.parse(value) : value;
}

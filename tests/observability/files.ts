/** Reads the dashboard and the alerts. */

const ROOT = new URL("../../", import.meta.url);

/** One rule of `alerts.yml`. */
export interface Alert {
  name: string;
  expression: string;
  severity: string;
  runbook: string;
}

/** A file of the repository. */
export function readText(path: string): Promise<string> {
  return Deno.readTextFile(new URL(path, ROOT));
}

/** Every expression of the dashboard. */
export async function dashboardExpressions(): Promise<string[]> {
  const dashboard: { panels: { targets?: { expr: string }[] }[] } = JSON.parse(
    await readText("deploy/observability/grafana/dashboards/gateway.json"),
  );
  return dashboard.panels.flatMap(({ targets = [] }) =>
    targets.map(({ expr }) => expr)
  );
}

/** Every alert. The file is simple enough to read without a YAML parser. */
export async function alerts(): Promise<Alert[]> {
  const text = await readText("deploy/observability/alerts.yml");
  return text.split("- alert: ").slice(1).map((rule) => ({
    name: rule.split("\n")[0] ?? "",
    expression: scalar(rule, "expr"),
    severity: /severity: (\w+)/.exec(rule)?.[1] ?? "",
    runbook: scalar(rule, "runbook"),
  }));
}

/** The value in a line `name: value`, as the formatter leaves it. */
function scalar(rule: string, name: string): string {
  const value = new RegExp(`^ +${name}: (.*)$`, "m").exec(rule)?.[1] ?? "";
  if (value.startsWith("'")) return value.slice(1, -1).replaceAll("''", "'");
  return value.startsWith('"') ? JSON.parse(value) : value;
}

// Promise: code, dashboard and alerts have the same metrics, Prometheus accepts its
// configuration, and each alert fires when it should and not otherwise.
// `tests/e2e/observability_checks.ts` tests that a running cluster exports the metrics.
import assert from "node:assert/strict";
import { METRIC_TABLES } from "../../deploy/docs/pages.ts";
import { canRun, leaveOut, runProcess } from "../support/process.ts";
import { readSource } from "../support/repository/source_files.ts";

const dashboard: { panels: { targets?: { expr: string }[] }[] } = JSON.parse(
  readSource("deploy/observability/grafana/dashboards/gateway.json"),
);
/** Every expression of the dashboard. */
const EXPRESSIONS: readonly string[] = dashboard.panels
  .flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));

/** Cases of alerts, and the results that they must have. */
const CASE_FILES = [
  "alerts_test.yml",
  "alerts_shares_test.yml",
  "alerts_hours_test.yml",
];
/** Every rule of `alerts.yml`, which is simple enough to read without a YAML parser. */
const ALERTS = readSource("deploy/observability/alerts.yml")
  .split("- alert: ").slice(1).map((rule) => ({
    name: rule.split("\n")[0] ?? "",
    expression: scalar(rule, "expr"),
    severity: /severity: (\w+)/.exec(rule)?.[1] ?? "",
    runbook: scalar(rule, "runbook_url"),
  }));

/** The value in a line `name: value`, as the formatter leaves it. */
function scalar(rule: string, name: string): string {
  const value = new RegExp(`^ +${name}: (.*)$`, "m").exec(rule)?.[1] ?? "";
  if (value.startsWith("'")) return value.slice(1, -1).replaceAll("''", "'");
  return value.startsWith('"') ? JSON.parse(value) : value;
}

const SPECS = METRIC_TABLES.flatMap(({ table }) => Object.values(table));
const METRICS = new Map(SPECS.map((spec) => [spec.name, spec]));
/** The labels that Prometheus itself adds, and those of a histogram. */
const OTHER_LABELS = ["job", "instance", "le"];

const firstOf = (text: string, form: RegExp): string[] =>
  [...text.matchAll(form)].map(([, first = ""]) => first);

/** The metrics of a PromQL expression: a histogram has no series of its own name. */
const metricsIn = (expression: string) =>
  firstOf(expression, /\b(gateway_\w+)/g).map((series) => {
    const [, base = ""] = /^(.*)_(?:bucket|sum|count)$/.exec(series) ?? [];
    const histogram = METRICS.get(base);
    const metric = histogram?.type === "histogram"
      ? histogram
      : METRICS.get(series) ?? assert.fail(`no metric ${series}`);
    assert.ok(metric === histogram || metric.type !== "histogram", series);
    return { series, metric };
  });

/**
 * Fails if an expression names a label that its metrics do not have, or a counter
 * without its rate.
 */
function check(expression: string): void {
  const labels = new Set(OTHER_LABELS);
  for (const { series, metric } of metricsIn(expression)) {
    const { type, labels: own } = metric;
    for (const label of own) labels.add(label);
    const rate = new RegExp(`\\b(?:rate|increase)\\(${series}\\b`);
    if (type === "histogram") continue;
    assert.equal(rate.test(expression), type === "counter", expression);
  }
  const names = [
    ...firstOf(expression, /[{,]\s*(\w+)\s*(?:=|!)/g),
    ...firstOf(expression, /\bby\s*\(([^)]*)\)/g)
      .flatMap((names) => names.split(",").map((name) => name.trim())),
  ];
  for (const label of names) assert.ok(labels.has(label), expression);
}

Deno.test("metric names are unique and follow the conventions", () => {
  assert.equal(METRICS.size, SPECS.length);
  for (const { name, type, help, labels, ...rest } of SPECS) {
    assert.match(name, /^gateway_[a-z]+(_[a-z]+)*$/);
    assert.equal(name.endsWith("_total"), type === "counter", name);
    assert.match(help, /\.$/, name);
    assert.equal(new Set(labels).size, labels.length, name);
    if (!("buckets" in rest)) continue;
    assert.match(name, /_seconds$/);
    const { buckets } = rest;
    const rising = [...new Set(buckets)].sort((a, b) => a - b);
    assert.deepEqual(buckets, rising, name);
  }
});

Deno.test("dashboard and alerts use only metrics and labels that exist", () => {
  assert.ok(EXPRESSIONS.length > 30 && ALERTS.length > 20);
  const expressions = ALERTS.map(({ expression }) => expression);
  for (const expression of [...EXPRESSIONS, ...expressions]) check(expression);
  const mistakes = [
    "gateway_naks_total",
    "rate(gateway_nacks_total[5m])",
    "rate(gateway_leases[5m])",
    "gateway_leases_sum",
    "sum by (colour) (gateway_leases)",
    'gateway_leases{colour="red"}',
  ];
  for (const mistake of mistakes) {
    assert.throws(() => check(mistake), assert.AssertionError, mistake);
  }
});

Deno.test("the dashboard shows every metric", () => {
  const shown = EXPRESSIONS.flatMap(metricsIn).map(({ metric }) => metric.name);
  // `/readyz` and an alert show its reasons.
  const metrics = new Set([...shown, "gateway_not_ready"]);
  assert.deepEqual(
    [...METRICS.keys()].filter((name) => !metrics.has(name)),
    [],
  );
});

Deno.test("each alert has a case where it fires and one where it must not", () => {
  const cases = CASE_FILES
    .map((file) => readSource(`deploy/observability/${file}`)).join("")
    .split(/alertname: /).slice(1).map((text) => {
      const [name = ""] = /^\w+/.exec(text) ?? [];
      return `${name} ${/exp_alerts: \[\]/.test(text) ? "silent" : "fires"}`;
    });
  const tests = ALERTS.flatMap(({ name }) => [
    `${name} fires`,
    `${name} silent`,
  ]);
  assert.deepEqual([...new Set(cases)].sort(), tests.sort());
});

Deno.test("each alert links to its section, which has its severity and says what to do", () => {
  const [, ...sections] = readSource("docs/troubleshooting.md")
    .split(/^### /m);
  assert.equal(sections.length, ALERTS.length);
  for (const { name, runbook, severity } of ALERTS) {
    const place = `/runbooks#${name.toLowerCase()}`;
    assert.equal(runbook, `{{ $externalLabels.console }}${place}`);
    const section = sections.find((text) => text.startsWith(`${name}\n`));
    assert.match(section ?? "", new RegExp(`\n\n_${severity}_ · [^]*\n- `));
  }
});

const PROMTOOL = [
  "check config prometheus.yml",
  ...CASE_FILES.map((file) => `test rules ${file}`),
];
if (await canRun("promtool", "--version")) {
  const cwd = new URL("../../deploy/observability", import.meta.url);
  for (const line of PROMTOOL) {
    Deno.test(`promtool ${line}`, async () => {
      await runProcess("promtool", line.split(" "), { cwd });
    });
  }
} else leaveOut("the alerts", "promtool");

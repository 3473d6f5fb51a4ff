/**
 * Guarantee: code, dashboard and alerts have the same metrics.
 * `tests/e2e/observability_test.ts` tests that a running cluster exports them.
 */
import assert from "node:assert/strict";
import { METRIC_TABLES } from "../../deploy/docs/pages.ts";
import { ALERTS, EXPRESSIONS } from "./files.ts";

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

/** Fails if an expression names a label that its metrics do not have, or a counter without its rate. */
function check(expression: string): void {
  const labels = new Set(OTHER_LABELS);
  for (
    const { series, metric: { type, labels: own } } of metricsIn(expression)
  ) {
    for (const label of own) labels.add(label);
    const rate = new RegExp(`\\b(?:rate|increase)\\(${series}\\b`);
    if (type === "histogram") continue;
    assert.equal(rate.test(expression), type === "counter", expression);
  }
  const named = [
    ...firstOf(expression, /[{,]\s*(\w+)\s*(?:=|!)/g),
    ...firstOf(expression, /\bby\s*\(([^)]*)\)/g)
      .flatMap((names) => names.split(",").map((name) => name.trim())),
  ];
  for (const label of named) assert.ok(labels.has(label), expression);
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
  for (
    const mistaken of [
      ...["gateway_naks_total", "rate(gateway_nacks_total[5m])"],
      ...["rate(gateway_leases[5m])", "gateway_leases_sum"],
      ...["sum by (colour) (gateway_leases)", 'gateway_leases{colour="red"}'],
    ]
  ) assert.throws(() => check(mistaken), assert.AssertionError, mistaken);
});

Deno.test("the dashboard shows every metric", () => {
  const shown = EXPRESSIONS.flatMap(metricsIn).map(({ metric }) => metric.name);
  // `/readyz` and an alert show its reasons.
  const known = new Set([...shown, "gateway_not_ready"]);
  assert.deepEqual([...METRICS.keys()].filter((name) => !known.has(name)), []);
});

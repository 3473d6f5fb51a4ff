/**
 * Guarantee: code, dashboard and alerts have the same metrics.
 * `tests/e2e/observability_test.ts` tests that a running cluster exports them.
 */
import assert from "node:assert/strict";
import { METRIC_TABLES } from "../../deploy/docs/metrics.ts";
import { faultsOf, seriesIn } from "./promql.ts";
import { ALERTS, EXPRESSIONS } from "./files.ts";

const SPECS = METRIC_TABLES.flatMap(({ table }) => Object.values(table));
const METRICS = new Map(SPECS.map((spec) => [spec.name, spec]));

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
    assert.deepEqual([...buckets].sort((a, b) => a - b), buckets, name);
    assert.equal(new Set(buckets).size, buckets.length, name);
  }
});

Deno.test("dashboard and alerts use only metrics and labels that exist", () => {
  assert.ok(EXPRESSIONS.length > 30 && ALERTS.length > 20);
  const expressions = ALERTS.map(({ expression }) => expression);
  for (const expression of [...EXPRESSIONS, ...expressions]) {
    assert.deepEqual(faultsOf(expression, METRICS), [], expression);
  }
});

Deno.test("the dashboard shows every metric", () => {
  const shown = EXPRESSIONS.flatMap(seriesIn)
    .map((series) => series.replace(/_bucket$/, ""));
  // `/readyz` and an alert show its reasons.
  const known = new Set([...shown, "gateway_not_ready"]);
  assert.deepEqual([...METRICS.keys()].filter((name) => !known.has(name)), []);
});

Deno.test("faultsOf() finds the mistakes in an expression", () => {
  for (
    const [expression, fault] of [
      ["sum(rate(gateway_naks_total[5m]))", undefined],
      ["gateway_naks_total", "counter gateway_naks_total without rate"],
      ["rate(gateway_nacks_total[5m])", "no metric gateway_nacks_total"],
      ["rate(gateway_leases[5m])", "gauge gateway_leases with rate"],
      [
        "gateway_job_duration_seconds",
        "no metric gateway_job_duration_seconds",
      ],
      ["gateway_leases_sum", "no metric gateway_leases_sum"],
      ["sum by (colour) (gateway_leases)", "no label colour"],
      ['gateway_leases{colour="red"}', "no label colour"],
      ['up{job="edge-auth"} == 0', undefined],
    ] as const
  ) assert.equal(faultsOf(expression, METRICS)[0], fault, expression);
});

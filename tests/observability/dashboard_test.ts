/**
 * Guarantee: code, dashboard and alerts have the same metrics.
 * `tests/e2e/observability_test.ts` tests that a running cluster exports them.
 */
import assert from "node:assert/strict";
import { allMetrics } from "../../deploy/docs/metrics.ts";
import { faultsOf, seriesIn } from "./promql.ts";
import { alerts, dashboardExpressions } from "./files.ts";

const METRICS = new Map(allMetrics().map((spec) => [spec.name, spec]));

Deno.test("metric names are unique and follow the conventions", () => {
  const specs = allMetrics();
  assert.equal(METRICS.size, specs.length);
  for (const { name, type, help, labels, ...rest } of specs) {
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

Deno.test("the dashboard uses only metrics and labels that exist", async () => {
  const expressions = await dashboardExpressions();
  assert.ok(expressions.length > 30);
  for (const expression of expressions) {
    assert.deepEqual(faultsOf(expression, METRICS), [], expression);
  }
});

Deno.test("the dashboard shows every metric", async () => {
  const shown = new Set(
    (await dashboardExpressions()).flatMap(seriesIn)
      .map((series) => series.replace(/_bucket$/, "")),
  );
  // `/readyz` and an alert show its reasons.
  shown.add("gateway_not_ready");
  assert.deepEqual([...METRICS.keys()].filter((name) => !shown.has(name)), []);
});

Deno.test("the alerts use only metrics and labels that exist", async () => {
  const rules = await alerts();
  assert.ok(rules.length > 20);
  for (const { name, expression } of rules) {
    assert.deepEqual(faultsOf(expression, METRICS), [], name);
  }
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

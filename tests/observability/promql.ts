/** The part of PromQL that shows which metrics and labels an expression names. */
import type { MetricSpec } from "@gateway/shared/process/metrics";

const HISTOGRAM_SERIES = /_(?:bucket|sum|count)$/;
/** The labels that Prometheus itself adds. */
const PROMETHEUS_METRICS: ReadonlySet<string> = new Set(["up"]);
const PROMETHEUS_LABELS: readonly string[] = ["job", "instance"];

/** The mistakes in the names of an expression. */
export function faultsOf(
  expression: string,
  metrics: ReadonlyMap<string, MetricSpec>,
): string[] {
  const faults: string[] = [];
  const labels = new Set(PROMETHEUS_LABELS);
  for (const series of seriesIn(expression)) {
    const spec = metricOf(series, metrics);
    if (spec === null) {
      if (!PROMETHEUS_METRICS.has(series)) faults.push(`no metric ${series}`);
      continue;
    }
    for (const label of spec.labels) labels.add(label);
    if (series.endsWith("_bucket")) labels.add("le");
    if (spec.type === "counter" && !isRated(expression, series)) {
      faults.push(`counter ${series} without rate`);
    }
    if (spec.type === "gauge" && isRated(expression, series)) {
      faults.push(`gauge ${series} with rate`);
    }
  }
  for (const label of labelsIn(expression)) {
    if (!labels.has(label)) faults.push(`no label ${label}`);
  }
  return faults;
}

/** The metric a series belongs to, or null. A histogram has no series of its own name. */
export function metricOf(
  series: string,
  metrics: ReadonlyMap<string, MetricSpec>,
): MetricSpec | null {
  const base = metrics.get(series.replace(HISTOGRAM_SERIES, ""));
  if (base?.type === "histogram") {
    return HISTOGRAM_SERIES.test(series) ? base : null;
  }
  return metrics.get(series) ?? null;
}

/** Every series an expression names. */
export function seriesIn(expression: string): string[] {
  return [...new Set(expression.match(/\bgateway_\w+|\bup\b/g) ?? [])];
}

function labelsIn(expression: string): string[] {
  const matched = [...expression.matchAll(/[{,]\s*(\w+)\s*(?:=|!)/g)];
  const grouped = [...expression.matchAll(/\bby\s*\(([^)]*)\)/g)]
    .flatMap(([, names = ""]) => names.split(","));
  return [...matched.map(([, name = ""]) => name), ...grouped]
    .map((name) => name.trim()).filter((name) => name !== "");
}

function isRated(expression: string, series: string): boolean {
  return new RegExp(`\\b(?:rate|increase)\\(${series}\\b`).test(expression);
}

/**
 * The metrics of one process and their text for Prometheus. `prom-client` keeps
 * the list and writes the text; counting is done by the cells (`cells.ts`),
 * because its own counters take ten times as long.
 */
import {
  Counter as PromCounter,
  Gauge as PromGauge,
  Histogram as PromHistogram,
  Registry,
} from "prom-client";
import {
  CellFamily,
  CounterCell,
  HistogramCell,
  type LabelledCell,
  type LabelValues,
} from "./cells.ts";
import type { CounterSpec, GaugeSpec, HistogramSpec } from "./table.ts";

/** A counter of a table, ready to count. */
export type Counter<Labels extends readonly string[]> = CellFamily<
  Labels,
  CounterCell
>;

/** A histogram of a table, ready to be shown sizes. */
export type Histogram<Labels extends readonly string[]> = CellFamily<
  Labels,
  HistogramCell
>;

/** One value of a gauge: its label values, in the order of their names, and the number. */
export type GaugeSample<Labels extends readonly string[]> = readonly [
  LabelValues<Labels>,
  number,
];

/** All metrics of a process. A name can be used once. */
export class MetricRegistry {
  readonly #registry = new Registry();

  counter<Labels extends readonly string[]>(
    spec: CounterSpec<Labels>,
  ): Counter<Labels> {
    const family = new CellFamily(spec.labels, () => new CounterCell());
    new PromCounter({
      ...infoOf(spec),
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { labels, cell } of family.all()) {
          this.inc({ ...labels }, cell.value);
        }
      },
    });
    return family;
  }

  histogram<Labels extends readonly string[]>(
    spec: HistogramSpec<Labels>,
  ): Histogram<Labels> {
    const family = new CellFamily(
      spec.labels,
      () => new HistogramCell(spec.buckets),
    );
    this.#registry.registerMetric(
      new CellHistogram(spec, () => family.all()),
    );
    return family;
  }

  /** Asks for the values whenever somebody looks. `read` must not throw. */
  gauge<Labels extends readonly string[]>(
    spec: GaugeSpec<Labels>,
    read: () => Iterable<GaugeSample<Labels>>,
  ): void {
    new PromGauge({
      ...infoOf(spec),
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const [values, value] of read()) {
          this.set(labelsOf(spec.labels, values), value);
        }
      },
    });
  }

  /** The metrics in Prometheus' text format. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }
}

type HistogramValues = Awaited<ReturnType<PromHistogram<string>["get"]>>;

/** A histogram of the registry that shows the cells of ours. */
class CellHistogram extends PromHistogram<string> {
  /** Without values of its own: for all that is around them. */
  readonly #frame: PromHistogram<string>;
  readonly #spec: HistogramSpec;
  readonly #cells: () => Iterable<LabelledCell<HistogramCell>>;

  constructor(
    spec: HistogramSpec,
    cells: () => Iterable<LabelledCell<HistogramCell>>,
  ) {
    super({ ...infoOf(spec), registers: [] });
    this.#frame = new PromHistogram({ ...infoOf(spec), registers: [] });
    this.#spec = spec;
    this.#cells = cells;
  }

  /** What the registry asks for when it writes text. */
  async getForPromString(): Promise<HistogramValues> {
    const frame = await this.#frame.get();
    const { name, buckets } = this.#spec;
    const bounds = [...buckets, "+Inf"];
    const values: HistogramValues["values"] = [];
    for (const { labels, cell } of this.#cells()) {
      const counts = cell.cumulative();
      bounds.forEach((le, index) =>
        values.push({
          metricName: `${name}_bucket`,
          labels: { ...labels, le },
          value: counts[index] ?? 0,
        })
      );
      values.push(
        { metricName: `${name}_sum`, labels, value: cell.sum },
        { metricName: `${name}_count`, labels, value: counts.at(-1) ?? 0 },
      );
    }
    return { ...frame, values };
  }
}

function infoOf({ name, help, labels }: {
  name: string;
  help: string;
  labels: readonly string[];
}): { name: string; help: string; labelNames: string[] } {
  return { name, help, labelNames: [...labels] };
}

function labelsOf(
  names: readonly string[],
  values: readonly string[],
): Record<string, string> {
  return Object.fromEntries(
    names.map((name, index) => [name, values[index] ?? ""]),
  );
}

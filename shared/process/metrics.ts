/**
 * The metrics of a process and their Prometheus text. Each service lists its metrics
 * in one table; the documentation is generated from the tables, and the dashboard and
 * the alerts are checked against them.
 */

/** Buckets for the time to the first token and to the end of an answer. */
export const ANSWER_SECONDS: readonly number[] = [
  0.005,
  0.01,
  0.025,
  0.05,
  0.1,
  0.25,
  0.5,
  1,
  2.5,
  5,
  10,
  30,
  60,
  300,
];

/** The description of a metric. */
interface MetricInfo<Labels extends readonly string[]> {
  readonly help: string;
  /** Names whose values are few and known: never an id, a key or text from a caller. */
  readonly labels: Labels;
  /** Upper bounds of a histogram, in ascending order. One more bucket without a bound follows. */
  readonly buckets?: readonly number[];
}

/** A row of a table of metrics. */
export interface MetricSpec<
  Type extends "counter" | "gauge" | "histogram" =
    | "counter"
    | "gauge"
    | "histogram",
  Labels extends readonly string[] = readonly string[],
> extends MetricInfo<Labels> {
  readonly type: Type;
  /** `gateway_…`, ending in the unit, or in `_total` for a counter. */
  readonly name: string;
}

/** All metrics of one part of a service, by their names in code. */
export type MetricTable = Readonly<Record<string, MetricSpec>>;

/** A number that only increases: `counter("gateway_naks_total", { help: "…", labels: [] })`. */
export function counter<const Labels extends readonly string[]>(
  name: string,
  info: MetricInfo<Labels>,
): MetricSpec<"counter", Labels> {
  return { type: "counter", name, ...info };
}

/** A number that is read when the metrics are scraped. */
export function gauge<const Labels extends readonly string[]>(
  name: string,
  info: MetricInfo<Labels>,
): MetricSpec<"gauge", Labels> {
  return { type: "gauge", name, ...info };
}

/** Counts the values up to each of the bounds. */
export function histogram<const Labels extends readonly string[]>(
  name: string,
  info: MetricInfo<Labels> & { buckets: readonly number[] },
): MetricSpec<"histogram", Labels> {
  return { type: "histogram", name, ...info };
}

/** The values of a metric's labels, in the order of their names. */
type LabelValues<Labels extends readonly string[]> = {
  readonly [Index in keyof Labels]: string;
};

class CounterCell {
  #value = 0;

  add(amount = 1): void {
    this.#value += amount;
  }

  samples(name: string, labels: string): string[] {
    return [sample(name, labels, this.#value)];
  }
}

class HistogramCell {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    // With a dozen bounds, a linear search is fast enough.
    let index = 0;
    for (const bound of this.#bounds) {
      if (value <= bound) break;
      index += 1;
    }
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#sum += value;
  }

  samples(name: string, labels: string): string[] {
    const before = labels === "" ? "" : `${labels},`;
    let total = 0;
    const buckets = Array.from(this.#counts, (count, index) => {
      const bound = this.#bounds[index] ?? "+Inf";
      total += count;
      return sample(`${name}_bucket`, `${before}le="${bound}"`, total);
    });
    return [
      ...buckets,
      sample(`${name}_sum`, labels, this.#sum),
      sample(`${name}_count`, labels, total),
    ];
  }
}

/** Does not occur in label values, so that joined values stay distinct. */
const SEPARATOR = "\u0000";

/** A counter or histogram: one cell for each combination of label values, created on first use. */
class CellFamily<
  Labels extends readonly string[],
  Cell extends CounterCell | HistogramCell,
> {
  readonly #spec: MetricSpec;
  readonly #create: () => Cell;
  readonly #cells = new Map<string, { labels: string; cell: Cell }>();

  constructor(spec: MetricSpec, create: () => Cell) {
    this.#spec = spec;
    this.#create = create;
    // Without labels there is one cell, which is exported even while it is zero.
    if (spec.labels.length === 0) this.#add("", []);
  }

  /** The cell for these values, in the order of the label names. Callers may keep it. */
  with(...values: LabelValues<Labels>): Cell {
    const key = values.length === 1 ? values[0] ?? "" : values.join(SEPARATOR);
    return this.#cells.get(key)?.cell ?? this.#add(key, values);
  }

  samples(): string[] {
    return [...this.#cells.values()].flatMap(({ labels, cell }) =>
      cell.samples(this.#spec.name, labels)
    );
  }

  #add(key: string, values: readonly string[]): Cell {
    const labels = labelText(this.#spec.labels, values);
    const cell = this.#create();
    this.#cells.set(key, { labels, cell });
    return cell;
  }
}

/** All metrics of a process. A name can be used once. */
export class MetricRegistry {
  /** The function that writes the samples of each metric, by name. */
  readonly #metrics = new Map<
    string,
    { spec: MetricSpec; samples: () => string[] }
  >();

  counter<Labels extends readonly string[]>(
    spec: MetricSpec<"counter", Labels>,
  ): CellFamily<Labels, CounterCell> {
    return this.#family(spec, () => new CounterCell());
  }

  histogram<Labels extends readonly string[]>(
    spec: MetricSpec<"histogram", Labels>,
  ): CellFamily<Labels, HistogramCell> {
    return this.#family(spec, () => new HistogramCell(spec.buckets ?? []));
  }

  /** Adds a gauge whose label values and numbers are read at each scrape. `read` must not throw. */
  gauge<Labels extends readonly string[]>(
    spec: MetricSpec<"gauge", Labels>,
    read: () => Iterable<readonly [LabelValues<Labels>, number]>,
  ): void {
    this.#add(spec, () =>
      Array.from(
        read(),
        ([values, value]) =>
          sample(spec.name, labelText(spec.labels, values), value),
      ));
  }

  /** The metrics in Prometheus' text format, version 0.0.4. */
  text(): string {
    return Array.from(this.#metrics.values(), ({ spec, samples }) => {
      const { name, type, help } = spec;
      const escaped = help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
      const head = `# HELP ${name} ${escaped}\n# TYPE ${name} ${type}`;
      return [head, ...samples(), ""].join("\n");
    }).join("\n");
  }

  #family<
    Labels extends readonly string[],
    Cell extends CounterCell | HistogramCell,
  >(spec: MetricSpec, create: () => Cell): CellFamily<Labels, Cell> {
    const family = new CellFamily<Labels, Cell>(spec, create);
    this.#add(spec, () => family.samples());
    return family;
  }

  #add(spec: MetricSpec, samples: () => string[]): void {
    if (this.#metrics.has(spec.name)) {
      throw new Error(`The metric ${spec.name} exists already`);
    }
    this.#metrics.set(spec.name, { spec, samples });
  }
}

function sample(name: string, labels: string, value: number): string {
  return labels === "" ? `${name} ${value}` : `${name}{${labels}} ${value}`;
}

function labelText(
  names: readonly string[],
  values: readonly string[],
): string {
  return names.map((name, index) => {
    const value = (values[index] ?? "").replaceAll("\\", "\\\\")
      .replaceAll("\n", "\\n").replaceAll('"', '\\"');
    return `${name}="${value}"`;
  }).join(",");
}

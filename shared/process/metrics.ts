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

/** What every metric says of itself. */
interface MetricInfo<Labels extends readonly string[]> {
  /** `gateway_…`, with the unit at the end, and `_total` when it only rises. */
  readonly name: string;
  readonly help: string;
  /** Names whose values are few and known: never an id, a key or text from a caller. */
  readonly labels: Labels;
}

/** A number that only rises. */
export interface CounterSpec<
  Labels extends readonly string[] = readonly string[],
> extends MetricInfo<Labels> {
  readonly type: "counter";
}

/** A number as it stands when it is looked at. */
export interface GaugeSpec<
  Labels extends readonly string[] = readonly string[],
> extends MetricInfo<Labels> {
  readonly type: "gauge";
}

/** How often a size was at most each of the bounds. */
export interface HistogramSpec<
  Labels extends readonly string[] = readonly string[],
> extends MetricInfo<Labels> {
  readonly type: "histogram";
  /** Upper bounds, rising. Beyond the last there is one more, without bound. */
  readonly buckets: readonly number[];
}

export type MetricSpec = CounterSpec | GaugeSpec | HistogramSpec;

/** All metrics of one part of a service, by the name its code uses. */
export type MetricTable = Readonly<Record<string, MetricSpec>>;

interface MetricOptions<Labels extends readonly string[]> {
  help: string;
  labels: Labels;
}

/** A row of a table: `counter("gateway_naks_total", { help: "…", labels: [] })`. */
export function counter<const Labels extends readonly string[]>(
  name: string,
  options: MetricOptions<Labels>,
): CounterSpec<Labels> {
  return { type: "counter", name, ...options };
}

/** A row of a table. */
export function gauge<const Labels extends readonly string[]>(
  name: string,
  options: MetricOptions<Labels>,
): GaugeSpec<Labels> {
  return { type: "gauge", name, ...options };
}

/** A row of a table. */
export function histogram<const Labels extends readonly string[]>(
  name: string,
  options: MetricOptions<Labels> & { buckets: readonly number[] },
): HistogramSpec<Labels> {
  return { type: "histogram", name, ...options };
}

/** A value for each label of a metric. */
export type LabelValues<Labels extends readonly string[]> = {
  readonly [Index in keyof Labels]: string;
};

/** One counter. */
export class CounterCell {
  #value = 0;

  get value(): number {
    return this.#value;
  }

  add(amount = 1): void {
    this.#value += amount;
  }
}

/** One histogram. */
export class HistogramCell {
  readonly #bounds: readonly number[];
  readonly #counts: Float64Array;
  #sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Float64Array(bounds.length + 1);
  }

  get sum(): number {
    return this.#sum;
  }

  observe(value: number): void {
    let index = 0;
    // A dozen bounds at most: searching costs no more than a division would.
    for (const bound of this.#bounds) {
      if (value <= bound) break;
      index += 1;
    }
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#sum += value;
  }

  /** How many were at most each bound; the last entry counts all. */
  cumulative(): number[] {
    let total = 0;
    return Array.from(this.#counts, (count) => total += count);
  }
}

/** Not in any label value, so that joined values stay apart. */
const SEPARATOR = "\u0000";

/** The cells of one metric, made when they are first named. */
export class CellFamily<Labels extends readonly string[], Cell> {
  readonly #names: Labels;
  readonly #create: () => Cell;
  readonly #cells = new Map<string, { labels: string; cell: Cell }>();

  constructor(names: Labels, create: () => Cell) {
    this.#names = names;
    this.#create = create;
    // Without labels there is one cell, and zero is a value worth showing.
    if (names.length === 0) this.#add("", names);
  }

  /** The cell of these values, in the order of the names. Kept by those who use it often. */
  with(...values: LabelValues<Labels>): Cell {
    const key = values.length === 1 ? values[0] ?? "" : values.join(SEPARATOR);
    return this.#cells.get(key)?.cell ?? this.#add(key, values);
  }

  /** The cells with their labels as the text has them: `route="chat",status="200"`. */
  all(): Iterable<{ labels: string; cell: Cell }> {
    return this.#cells.values();
  }

  #add(key: string, values: readonly string[]): Cell {
    const cell = this.#create();
    this.#cells.set(key, { labels: labelText(this.#names, values), cell });
    return cell;
  }
}

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
  /** What writes the samples of each metric, by its name. */
  readonly #metrics = new Map<
    string,
    { spec: MetricSpec; samples: () => string[] }
  >();

  counter<Labels extends readonly string[]>(
    spec: CounterSpec<Labels>,
  ): Counter<Labels> {
    const family = new CellFamily(spec.labels, () => new CounterCell());
    this.#add(spec, () =>
      Array.from(
        family.all(),
        ({ labels, cell }) => sample(spec.name, labels, cell.value),
      ));
    return family;
  }

  histogram<Labels extends readonly string[]>(
    spec: HistogramSpec<Labels>,
  ): Histogram<Labels> {
    const { name, buckets } = spec;
    const family = new CellFamily(
      spec.labels,
      () => new HistogramCell(buckets),
    );
    this.#add(spec, () =>
      [...family.all()].flatMap(({ labels, cell }) => {
        const counts = cell.cumulative();
        const before = labels === "" ? "" : `${labels},`;
        return [
          ...counts.map((count, index) =>
            sample(
              `${name}_bucket`,
              `${before}le="${buckets[index] ?? "+Inf"}"`,
              count,
            )
          ),
          sample(`${name}_sum`, labels, cell.sum),
          sample(`${name}_count`, labels, counts.at(-1) ?? 0),
        ];
      }));
    return family;
  }

  /** Asks for the values whenever somebody looks. `read` must not throw. */
  gauge<Labels extends readonly string[]>(
    spec: GaugeSpec<Labels>,
    read: () => Iterable<GaugeSample<Labels>>,
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
      const help = spec.help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
      return [
        `# HELP ${spec.name} ${help}`,
        `# TYPE ${spec.name} ${spec.type}`,
        ...samples(),
        "",
      ].join("\n");
    }).join("\n");
  }

  #add(spec: MetricSpec, samples: () => string[]): void {
    if (this.#metrics.has(spec.name)) {
      throw new Error(`The metric ${spec.name} is there already`);
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

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

type MetricType = "counter" | "gauge" | "histogram";

/** A row of a table of metrics. */
export interface MetricSpec<
  Type extends MetricType = MetricType,
  Labels extends readonly string[] = readonly string[],
> {
  readonly type: Type;
  /** `gateway_…`, ending in the unit, or in `_total` for a counter. */
  readonly name: string;
  readonly help: string;
  /** Names whose values are few and known: never an id, a key or text from a caller. */
  readonly labels: Labels;
  /** Upper bounds of a histogram, in ascending order. One more bucket without a bound follows. */
  readonly buckets?: readonly number[];
}

/** All metrics of one part of a service, by their names in code. */
export type MetricTable = Readonly<Record<string, MetricSpec>>;

function row<Type extends MetricType>(type: Type) {
  return <const Labels extends readonly string[]>(
    name: string,
    info: Omit<MetricSpec<Type, Labels>, "type" | "name">,
  ): MetricSpec<Type, Labels> => ({ type, name, ...info });
}

/** A number that only increases: `counter("gateway_naks_total", { help: "…", labels: [] })`. */
export const counter = row("counter");
/** A number that is read when the metrics are scraped. */
export const gauge = row("gauge");
/** Counts the values up to each of the bounds. */
export const histogram = row("histogram");

/** The values of a metric's labels, in the order of their names. */
type LabelValues<Labels extends readonly string[]> = {
  readonly [Index in keyof Labels]: string;
};

/** Returns the cell for these label values, which callers may keep. */
interface Family<Labels extends readonly string[], Cell> {
  with(...values: LabelValues<Labels>): Cell;
}

/** The number of a counter, or the numbers of a histogram, for one combination of label values. */
class Cell {
  readonly #labels: string;
  readonly #bounds: readonly number[] | undefined;
  readonly #counts: number[];
  #sum = 0;

  constructor(labels: string, bounds: readonly number[] | undefined) {
    this.#labels = labels;
    this.#bounds = bounds;
    this.#counts = new Array<number>((bounds?.length ?? 0) + 1).fill(0);
  }

  add(amount = 1): void {
    this.#sum += amount;
  }

  observe(value: number): void {
    const index = this.#bounds?.findIndex((bound) => value <= bound) ?? 0;
    const bucket = index < 0 ? this.#counts.length - 1 : index;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += value;
  }

  samples(name: string): string[] {
    const labels = this.#labels;
    if (this.#bounds === undefined) return [sample(name, labels, this.#sum)];
    let count = 0;
    const buckets = [...this.#bounds, "+Inf"].map((bound, index) => {
      count += this.#counts[index] ?? 0;
      const le = `le="${bound}"`;
      const all = labels === "" ? le : `${labels},${le}`;
      return sample(`${name}_bucket`, all, count);
    });
    return [
      ...buckets,
      sample(`${name}_sum`, labels, this.#sum),
      sample(`${name}_count`, labels, count),
    ];
  }
}

/** Does not occur in label values, so that joined values stay distinct. */
const SEPARATOR = "\u0000";

/** All metrics of a process. A name can be used once. */
export class MetricRegistry {
  /** Returns the samples of each metric. */
  readonly #samples = new Map<MetricSpec, () => string[]>();

  counter<Labels extends readonly string[]>(
    spec: MetricSpec<"counter", Labels>,
  ): Family<Labels, Pick<Cell, "add">> {
    return this.#family(spec);
  }

  histogram<Labels extends readonly string[]>(
    spec: MetricSpec<"histogram", Labels>,
  ): Family<Labels, Pick<Cell, "observe">> {
    return this.#family(spec);
  }

  /**
   * Adds a gauge that is read at each scrape: a number, or a number for each
   * combination of label values. `read` must not throw.
   */
  gauge<Labels extends readonly string[]>(
    spec: MetricSpec<"gauge", Labels>,
    read: () => number | Iterable<readonly [LabelValues<Labels>, number]>,
  ): void {
    const { name, labels } = spec;
    this.#add(spec, () => {
      const now = read();
      if (typeof now === "number") return [sample(name, "", now)];
      return Array.from(
        now,
        ([values, value]) => sample(name, labelText(labels, values), value),
      );
    });
  }

  /** The metrics in Prometheus' text format, version 0.0.4. */
  text(): string {
    return Array.from(this.#samples, ([{ name, type, help }, samples]) => {
      const escaped = help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
      const head = `# HELP ${name} ${escaped}\n# TYPE ${name} ${type}`;
      return [head, ...samples(), ""].join("\n");
    }).join("\n");
  }

  #family(spec: MetricSpec): Family<readonly string[], Cell> {
    const { name, labels, buckets } = spec;
    const cells = new Map<string, Cell>();
    const cellOf = (...values: readonly string[]): Cell => {
      const key = values.join(SEPARATOR);
      const known = cells.get(key);
      if (known !== undefined) return known;
      const cell = new Cell(labelText(labels, values), buckets);
      cells.set(key, cell);
      return cell;
    };
    // Without labels there is one cell, which is exported even while it is zero.
    if (labels.length === 0) cellOf();
    this.#add(
      spec,
      () => [...cells.values()].flatMap((cell) => cell.samples(name)),
    );
    return { with: cellOf };
  }

  #add(spec: MetricSpec, samples: () => string[]): void {
    if (this.#samples.keys().some(({ name }) => name === spec.name)) {
      throw new Error(`The metric ${spec.name} exists already`);
    }
    this.#samples.set(spec, samples);
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

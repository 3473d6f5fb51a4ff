/**
 * The metrics of a process, listed in one table for each service, and their Prometheus
 * text.
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

/** One metric: what it counts or measures, and by which labels. */
export interface MetricSpec {
  readonly type: "counter" | "gauge" | "histogram";
  /** `gateway_…`, ending in the unit, or in `_total` for a counter. */
  readonly name: string;
  readonly help: string;
  /**
   * Names whose values are few and known: never an id, a key or text from a caller. If
   * there are none, it is a single number or histogram.
   */
  readonly labels: readonly string[];
  /**
   * Values of the labels that are exported as 0 from the start: without an initial
   * zero, the first increment is invisible to rate().
   */
  readonly zeros?: readonly (readonly string[])[];
  /**
   * Upper bounds of a histogram, in ascending order. One more bucket without a bound
   * follows.
   */
  readonly buckets?: readonly number[];
}

/** The metrics of a service by the names that its code uses. */
export type MetricTable = Readonly<Record<string, MetricSpec>>;

/** What describes a metric, besides its type and name. */
export type AboutMetric =
  & Pick<MetricSpec, "help">
  & Partial<Omit<MetricSpec, "type" | "name">>;

/** A number that only increases. */
export function counter(name: string, about: AboutMetric): MetricSpec {
  return { type: "counter", name, labels: [], ...about };
}

/** A number that is read when the metrics are scraped. */
export function gauge(name: string, about: AboutMetric): MetricSpec {
  return { type: "gauge", name, labels: [], ...about };
}

/** Counts the durations up to each of the bounds, in seconds. */
export function histogram(name: string, about: AboutMetric): MetricSpec {
  return { type: "histogram", name, labels: [], ...about };
}

/**
 * The number of a counter, or the numbers of a histogram, for one combination of label
 * values.
 */
class Cell {
  /** The number of a counter; the sum of the durations of a histogram, in seconds. */
  sum = 0;
  readonly counts: number[];

  constructor(readonly labels: string, readonly bounds: readonly number[]) {
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  add(amount = 1): void {
    this.sum += amount;
  }

  /** Counts a duration, in seconds as Prometheus wants it. */
  observeMs(ms: number): void {
    const seconds = ms / 1_000;
    const index = this.bounds.findIndex((bound) => seconds <= bound);
    const bucket = index < 0 ? this.bounds.length : index;
    this.counts[bucket] = (this.counts[bucket] ?? 0) + 1;
    this.sum += seconds;
  }
}

/** The cells whose first values are the same, by the next one. */
interface Level {
  readonly next: Map<string, Level>;
  /** The cell that has no more values. */
  cell: Cell | null;
}

/** A counter or histogram. Without labels, it is its own only cell. */
class Recorder extends Cell {
  readonly #cells: Cell[] = [];
  readonly #byValues: Level = { next: new Map(), cell: null };

  constructor(readonly spec: MetricSpec) {
    super("", spec.buckets ?? []);
    if (spec.labels.length === 0) this.#keep(this.#byValues, this);
    for (const values of spec.zeros ?? []) this.with(...values);
  }

  /** The cell for these values of the labels, in their order. Callers may keep it. */
  with(...values: readonly string[]): Cell {
    let level = this.#byValues;
    for (const value of values) {
      let next = level.next.get(value);
      if (next === undefined) {
        next = { next: new Map(), cell: null };
        level.next.set(value, next);
      }
      level = next;
    }
    return level.cell ??
      this.#keep(level, new Cell(labelText(this.spec, values), this.bounds));
  }

  #keep(level: Level, cell: Cell): Cell {
    level.cell = cell;
    this.#cells.push(cell);
    return cell;
  }

  samples(): string[] {
    const { name, type } = this.spec;
    return this.#cells.flatMap(({ labels, counts, sum }) => {
      if (type !== "histogram") return sample(name, labels, sum);
      let count = 0;
      const buckets = [...this.bounds, "+Inf"].map((bound, index) => {
        count += counts[index] ?? 0;
        const le = [labels, `le="${bound}"`].filter(Boolean).join(",");
        return sample(`${name}_bucket`, le, count);
      });
      return [
        ...buckets,
        sample(`${name}_sum`, labels, sum),
        sample(`${name}_count`, labels, count),
      ];
    });
  }
}

/** A metric, and a function that returns its current lines. */
interface Registered {
  readonly spec: MetricSpec;
  readonly samples: () => string[];
}

/** The current values of a gauge: one, or one for each combination of labels. */
export type GaugeValues =
  | number
  | boolean
  | Iterable<readonly [labels: readonly string[], value: number]>;

/** The metrics of one process. Metrics are added at its start and never removed. */
export class MetricRegistry {
  readonly #metrics: Registered[] = [];

  /**
   * Adds the counters and histograms of a table, not its gauges, and returns what
   * records them.
   */
  record<Name extends string>(
    table: Readonly<Record<Name, MetricSpec>>,
  ): Readonly<Record<Name, Recorder>>;
  record(table: MetricTable): Readonly<Record<string, Recorder>> {
    const recorded = Object.entries(table)
      .filter(([, { type }]) => type !== "gauge");
    return Object.fromEntries(recorded.map(([name, spec]) => {
      const recorder = new Recorder(spec);
      this.#metrics.push({ spec, samples: () => recorder.samples() });
      return [name, recorder];
    }));
  }

  /**
   * A number for each combination of label values, or just one, read at each scrape.
   * `read` must not throw.
   */
  gauge(spec: MetricSpec, read: () => GaugeValues): void {
    const samples = () => {
      const values = read();
      if (typeof values !== "object") {
        return [sample(spec.name, "", Number(values))];
      }
      return Array.from(
        values,
        ([labels, value]) => sample(spec.name, labelText(spec, labels), value),
      );
    };
    this.#metrics.push({ spec, samples });
  }

  /** All metrics in Prometheus' text format. */
  text(): string {
    return this.#metrics.map(({ spec: { name, type, help }, samples }) => {
      const head = `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}`;
      return [head, ...samples()].join("\n");
    }).join("\n\n");
  }
}

const sample = (name: string, labels: string, value: number) =>
  `${name}${labels && `{${labels}}`} ${cleared(value)}`;

/** Doubles hold this many decimal digits; in sums of fractions, noise follows. */
const DECIMAL_DIGITS = 15;

/** A number without the noise of additions: 0.3 for 0.1 + 0.2. */
const cleared = (value: number): number =>
  Number.isInteger(value) ? value : Number(value.toPrecision(DECIMAL_DIGITS));

const labelText = ({ labels }: MetricSpec, values: readonly string[]) =>
  labels.map((name, index) =>
    `${name}="${escaped(values[index] ?? "").replaceAll('"', '\\"')}"`
  ).join(",");

const escaped = (text: string) =>
  text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");

/** The metrics of a process, listed in one table for each service, and their Prometheus text. */

/** Buckets for the time to the first token and to the end of an answer. */
export const ANSWER_SECONDS: readonly number[] = [
  ...[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
];

type MetricType = "counter" | "gauge" | "histogram";
type Names = readonly string[];

export interface MetricSpec<
  Type extends MetricType = MetricType,
  Labels extends Names = Names,
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

export type MetricTable = Readonly<Record<string, MetricSpec>>;

/** What a metric has besides its name; without `labels` it is a single number or histogram. */
type About<Labels extends Names> =
  & Pick<MetricSpec, "help" | "buckets">
  & { readonly labels?: Labels };

function row<Type extends MetricType>(type: Type) {
  function describe<const Labels extends Names = readonly []>(
    name: string,
    about: About<Labels>,
  ): MetricSpec<Type, Labels>;
  function describe(name: string, about: About<Names>): MetricSpec {
    return { type, name, labels: [], ...about };
  }
  return describe;
}

/** A number that only increases. */
export const counter = row("counter");
/** A number that is read when the metrics are scraped. */
export const gauge = row("gauge");
/** Counts the durations up to each of the bounds, in seconds. */
export const histogram = row("histogram");

/** The values of a metric's labels, in the order of their names. */
type Values<Labels extends Names> = {
  readonly [Index in keyof Labels]: string;
};

/** The counters and histograms of a table. `with` returns the cell for these label values, which callers may keep. */
type Recorders<Table extends MetricTable> = {
  readonly [
    Name in keyof Table as Table[Name]["type"] extends "gauge" ? never : Name
  ]: Recorder<
    Table[Name]["labels"],
    Pick<Cell, Table[Name]["type"] extends "counter" ? "add" : "observeMs">
  >;
};
type Recorder<Labels extends Names, Cell> = Labels extends readonly [] ? Cell
  : { with(...values: Values<Labels>): Cell };

/** The number of a counter, or the numbers of a histogram, for one combination of label values. */
class Cell {
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

/** Does not occur in label values, so that joined values stay distinct. */
const SEPARATOR = "\u0000";

/** All metrics of a process. */
export class MetricRegistry {
  /** Each with a function that returns its samples. */
  readonly #metrics: [MetricSpec, samples: () => string[]][] = [];

  /** Adds the counters and histograms of a table, for what they are to record. */
  record<Table extends MetricTable>(table: Table): Recorders<Table>;
  record(table: MetricTable): { readonly [name: string]: unknown } {
    const recorded = Object.entries(table)
      .filter(([, { type }]) => type !== "gauge");
    return Object.fromEntries(
      recorded.map(([name, spec]) => [name, this.#recorder(spec)]),
    );
  }

  /** A number for each combination of label values, or just one, read at each scrape. `read` must not throw. */
  gauge<Labels extends Names>(
    spec: MetricSpec<"gauge", Labels>,
    read: () =>
      | number
      | boolean
      | Iterable<readonly [Values<Labels>, number]>,
  ): void {
    const { name, labels } = spec;
    this.#metrics.push([spec, () => {
      const now = read();
      if (typeof now !== "object") return [sample(name, "", Number(now))];
      return Array.from(
        now,
        ([values, value]) => sample(name, labelText(labels, values), value),
      );
    }]);
  }

  text(): string {
    return this.#metrics.map(([{ name, type, help }, samples]) => {
      const head = `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}`;
      return [head, ...samples()].join("\n");
    }).join("\n\n");
  }

  #recorder(spec: MetricSpec) {
    const { labels, buckets = [] } = spec;
    const cells = new Map<string, Cell>();
    this.#metrics.push([
      spec,
      () => [...cells.values()].flatMap((cell) => samplesOf(spec, cell)),
    ]);
    const cellOf = (...values: Names): Cell => {
      const key = values.join(SEPARATOR);
      const known = cells.get(key);
      if (known !== undefined) return known;
      const cell = new Cell(labelText(labels, values), buckets);
      cells.set(key, cell);
      return cell;
    };
    return labels.length === 0 ? cellOf() : { with: cellOf };
  }
}

function samplesOf({ name, type }: MetricSpec, cell: Cell): string[] {
  const { labels, bounds, counts, sum } = cell;
  if (type !== "histogram") return [sample(name, labels, sum)];
  let count = 0;
  const buckets = [...bounds, "+Inf"].map((bound, index) => {
    count += counts[index] ?? 0;
    const le = [labels, `le="${bound}"`].filter(Boolean).join(",");
    return sample(`${name}_bucket`, le, count);
  });
  return [
    ...buckets,
    sample(`${name}_sum`, labels, sum),
    sample(`${name}_count`, labels, count),
  ];
}

const sample = (name: string, labels: string, value: number) =>
  `${name}${labels && `{${labels}}`} ${value}`;

function labelText(names: Names, values: Names): string {
  return names.map((name, index) =>
    `${name}="${escaped(values[index] ?? "").replaceAll('"', '\\"')}"`
  ).join(",");
}

const escaped = (text: string) =>
  text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");

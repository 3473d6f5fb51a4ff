/** The metrics of a process, listed in one table for each service, and their Prometheus text. */

/** Buckets for the time to the first token and to the end of an answer. */
export const ANSWER_SECONDS: readonly number[] = [
  ...[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
];

type MetricType = "counter" | "gauge" | "histogram";

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

export type MetricTable = Readonly<Record<string, MetricSpec>>;

/** How a metric is written down: without `labels` it is a single number or histogram. */
type Info<Labels extends readonly string[]> =
  & Omit<MetricSpec<MetricType, Labels>, "type" | "name" | "labels">
  & { readonly labels?: Labels };

function row<Type extends MetricType>(type: Type) {
  function describe<const Labels extends readonly string[] = readonly []>(
    name: string,
    info: Info<Labels>,
  ): MetricSpec<Type, Labels>;
  function describe(name: string, info: Info<readonly string[]>): MetricSpec {
    return { type, name, labels: [], ...info };
  }
  return describe;
}

/** A number that only increases: `counter("gateway_naks_total", { help: "…" })`. */
export const counter = row("counter");
/** A number that is read when the metrics are scraped. */
export const gauge = row("gauge");
/** Counts the durations up to each of the bounds, in seconds. */
export const histogram = row("histogram");

/** The values of a metric's labels, in the order of their names. */
type LabelValues<Labels extends readonly string[]> = {
  readonly [Index in keyof Labels]: string;
};

/** What is counted or observed; `with` returns the cell for these label values, which callers may keep. */
type Recorder<Labels extends readonly string[], Cell> = Labels extends
  readonly [] ? Cell
  : { with(...values: LabelValues<Labels>): Cell };

/** The counters and histograms of a table. */
type Recorders<Table extends MetricTable> = {
  readonly [
    Name in keyof Table as Table[Name]["type"] extends "gauge" ? never : Name
  ]: Recorder<
    Table[Name]["labels"],
    Pick<Cell, Table[Name]["type"] extends "counter" ? "add" : "observeMs">
  >;
};

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

  /** Counts a duration, in seconds as Prometheus wants it. */
  observeMs(ms: number): void {
    const value = ms / 1_000;
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

  text(): string {
    return Array.from(this.#samples, ([{ name, type, help }, samples]) => {
      const escaped = help.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
      const head = `# HELP ${name} ${escaped}\n# TYPE ${name} ${type}`;
      return [head, ...samples(), ""].join("\n");
    }).join("\n");
  }

  #recorder(spec: MetricSpec) {
    const { name, labels, buckets } = spec;
    const cells = new Map<string, Cell>();
    this.#add(
      spec,
      () => [...cells.values()].flatMap((cell) => cell.samples(name)),
    );
    const cellOf = (...values: readonly string[]): Cell => {
      const key = values.join(SEPARATOR);
      const known = cells.get(key);
      if (known !== undefined) return known;
      const cell = new Cell(labelText(labels, values), buckets);
      cells.set(key, cell);
      return cell;
    };
    return labels.length === 0 ? cellOf() : { with: cellOf };
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

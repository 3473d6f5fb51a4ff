/** Buckets for the time to the first word of an answer and to its last one. */
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
/**
 * What a metric is, as data: one table per service says all that it exports. The
 * code takes its metrics from the table, the documentation is written from it,
 * and dashboard and alerts are checked against it, so that the four cannot
 * disagree. Pure.
 */

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

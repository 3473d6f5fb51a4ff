/** Usage as bar charts: requests, tokens, and every other unit that was counted. */

import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import { minuteText } from "../../../domain/keys/key_record.ts";
import type { Counts, KeyUsage } from "../../../domain/keys/usage.ts";
import { labelOf, number } from "../../view/texts.tsx";

/** The ranges whose usage is shown, with the name of their parts. */
export const RANGES = {
  "24h": { name: "24 hours", unit: "hour", head: "Hour from", last: "Now" },
  "30d": { name: "30 days", unit: "day", head: "Day (UTC)", last: "Today" },
} as const;

/** A range whose usage is shown. */
export type Range = keyof typeof RANGES;

/** A day of a chart or table, in UTC: `Nov 28`. */
export const dayText = (timeMs: number): string => DAY.format(timeMs);

const DAY = new Intl.DateTimeFormat("en", {
  month: "short",
  day: "numeric",
  timeZone: "UTC",
});

/** A part of each bar. */
interface Series {
  label: string;
  /** A CSS colour. */
  color: string;
  countIn: (counts: Counts) => number;
}

/** A chart. The lowest part of its bars comes first. */
interface Chart {
  title: string;
  series: readonly Series[];
}

const MADE = "var(--accent)";
const FAINT = "color-mix(in srgb, var(--accent) 50%, var(--surface))";
const REQUESTS: Chart = {
  title: "Requests",
  series: [
    {
      label: "Successful",
      color: MADE,
      // A bar cannot have a negative height, whatever the counters say.
      countIn: ({ requests = 0, failed = 0 }) => Math.max(0, requests - failed),
    },
    {
      label: "Failed",
      color: "var(--bad)",
      countIn: ({ failed = 0 }) => failed,
    },
    {
      label: "Refused",
      color: "var(--warn)",
      countIn: ({ refused = 0 }) => refused,
    },
  ],
};
const TOKENS: Chart = {
  title: "Tokens",
  series: [
    {
      label: "Input",
      color: FAINT,
      countIn: ({ inputTokens = 0 }) => inputTokens,
    },
    {
      label: "Output",
      color: MADE,
      countIn: ({ outputTokens = 0 }) => outputTokens,
    },
  ],
};

/** The chart of a unit other than tokens. */
function unitChart(unit: UsageUnit): Chart {
  const label = labelOf(unit);
  const countIn = (counts: Counts) => counts[unit] ?? 0;
  return { title: label, series: [{ label, color: MADE, countIn }] };
}

/** A chart of requests, one of tokens, and one of each of these units. */
export function UsageCharts(
  { usage, units }: { usage: KeyUsage; units: readonly UsageUnit[] },
) {
  const charts = [REQUESTS, TOKENS, ...units.map(unitChart)];
  return (
    <>
      {charts.map((chart) => <BarChart key="" chart={chart} usage={usage} />)}
    </>
  );
}

/** The width of a bar, where a bucket is 1 wide. */
const BAR_WIDTH = 0.7;

/** The parts of a bar, from the bottom up, each with the counts of those below it. */
function stacked(bucket: Counts, series: readonly Series[]) {
  let below = 0;
  return series.map(({ color, countIn }) => {
    const count = countIn(bucket);
    const part = { fill: color, count, below };
    below += count;
    return part;
  });
}

/** At most so many intervals are between the lines of a chart. */
const INTERVALS_MAX = 4;
/** The leading digits of what one interval may be. */
const ROUND = [1, 2, 5, 10];
/** Labels of times below a chart: at its ends, and between them. */
const TIMES = 5;

/**
 * The numbers of the lines of a chart, from 0 up, of which the last is not below
 * `most`: 0, 20, 40, 60 for 47.
 */
export function ticksOf(most: number): number[] {
  const least = Math.max(1, most / INTERVALS_MAX);
  const power = 10 ** Math.floor(Math.log10(least));
  const digits = ROUND.find((digits) => digits * power >= least) ?? 1;
  const step = digits * power;
  const count = Math.max(1, Math.ceil(most / step));
  return Array.from({ length: count + 1 }, (_, at) => at * step);
}

/** Keeps the line of values open while there are none. */
const NO_VALUES = "\u00A0";
const SHORT = new Intl.NumberFormat("en", { notation: "compact" });

/** The times of some buckets, evenly from the first to the last. */
const timesOf = (buckets: KeyUsage["buckets"]): number[] =>
  Array.from({ length: TIMES }, (_, at) => {
    const place = Math.round(at * (buckets.length - 1) / (TIMES - 1));
    return buckets[place]?.startMs ?? 0;
  });

/** An hour of a chart in UTC: `13:00`. */
const hourText = (timeMs: number): string => HOUR.format(timeMs);
const HOUR = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  timeZone: "UTC",
});

/** Describes a bucket for people: `Nov 28: Input 5, Output 7`. */
function wordsOf(
  bucket: KeyUsage["buckets"][number],
  series: readonly Series[],
  isHourly: boolean,
): string {
  const { startMs } = bucket;
  const counts = series.map(({ label, countIn }) =>
    `${label} ${number(countIn(bucket))}`
  );
  // SVG has no `<time>`: the hour stays in UTC.
  const when = isHourly ? minuteText(startMs) : dayText(startMs);
  return `${when}: ${counts.join(", ")}`;
}

interface ChartProps {
  chart: Chart;
  usage: KeyUsage;
}

/**
 * A bar chart with axes. The bars and lines are an SVG, one unit wide for each bucket
 * and one high for each count, that is stretched to its box; the labels are text beside
 * it, so that they are not. A bar names its values under the pointer; with the script,
 * also for the arrow keys. The table below has the same numbers.
 */
function BarChart(
  { chart: { title, series }, usage: { buckets, range } }: ChartProps,
) {
  const { unit, last } = RANGES[range];
  const isHourly = range === "24h";
  const heading = `${title} per ${unit}`;
  const sums = buckets.map((bucket) =>
    series.reduce((sum, { countIn }) => sum + countIn(bucket), 0)
  );
  const ticks = ticksOf(Math.max(...sums));
  const top = ticks.at(-1) ?? 1;
  return (
    <figure class="card chart" data-chart>
      <figcaption class="between">
        <strong>{heading}</strong>
        <span class="row faint">
          {series.map(({ label, color }) => (
            <span>
              <svg width="10" height="10" aria-hidden="true">
                <rect fill={color} width="10" height="10" rx="3" />
              </svg>{" "}
              {label}
            </span>
          ))}
        </span>
      </figcaption>
      <output class="faint">{NO_VALUES}</output>
      <div class="plot">
        <div class="ticks faint" aria-hidden="true">
          {ticks.toReversed().map((tick) => (
            <span key={tick}>{SHORT.format(tick)}</span>
          ))}
        </div>
        <svg
          class="bars"
          viewBox={`0 0 ${buckets.length} ${top}`}
          preserveAspectRatio="none"
          role="img"
          tabindex={0}
          aria-label={`${heading}; the same numbers are in the table below`}
        >
          {ticks.map((tick) => (
            <line class="tick" x2={buckets.length} y1={tick} y2={tick} />
          ))}
          {buckets.map((bucket, at) => (
            <g>
              <title>{wordsOf(bucket, series, isHourly)}</title>
              <rect class="reach" x={at} width="1" height={top} />
              {stacked(bucket, series).map(({ fill, count, below }) => (
                <rect
                  fill={fill}
                  x={at + (1 - BAR_WIDTH) / 2}
                  y={top - below - count}
                  width={BAR_WIDTH}
                  height={count}
                />
              ))}
            </g>
          ))}
        </svg>
        <div class="between faint times">
          {timesOf(buckets).map((startMs, at) => (
            <span>
              {at === TIMES - 1
                ? last
                : isHourly
                ? hourText(startMs)
                : dayText(startMs)}
            </span>
          ))}
        </div>
      </div>
      <p class="faint">{isHourly ? "Hours in UTC" : "Days in UTC"}</p>
    </figure>
  );
}

/** Usage as bar charts: requests, tokens, and every other unit that was counted. */

import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import { minuteText } from "../../../domain/keys/key_record.ts";
import type { Counts, KeyUsage } from "../../../domain/keys/usage.ts";
import { labelOf, number, Time } from "../../view/texts.tsx";

/** The times whose usage is shown, and what pages call their parts. */
export const RANGES = {
  "24h": { name: "24 hours", unit: "hour", head: "Hour from", last: "Now" },
  "30d": { name: "30 days", unit: "day", head: "Day (UTC)", last: "Today" },
} as const;

/** The time whose usage is shown. */
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

/** What a chart shows, the lowest part of its bars first. */
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

/**
 * A bar chart as SVG, one unit wide for each bucket and one high for each count, and
 * stretched to its box. The table below it has the same numbers for screen readers.
 */
function BarChart(
  { chart: { title, series }, usage: { buckets, range } }: {
    chart: Chart;
    usage: KeyUsage;
  },
) {
  const { name, unit, last } = RANGES[range];
  const isHourly = range === "24h";
  const heading = `${title} per ${unit}`;
  const sums = buckets.map((bucket) =>
    series.reduce((sum, { countIn }) => sum + countIn(bucket), 0)
  );
  const most = Math.max(1, ...sums);
  return (
    <figure class="card">
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
          <span>Highest {number(most)}</span>
        </span>
      </figcaption>
      <svg
        class="bars"
        viewBox={`0 0 ${buckets.length} ${most}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${heading}; the same numbers are in the table below`}
      >
        {buckets.map((bucket, at) => {
          const { startMs } = bucket;
          const counts = series.map(({ label, countIn }) =>
            `${label} ${number(countIn(bucket))}`
          );
          return (
            <g>
              {/* SVG has no `<time>`: the hour stays in UTC. */}
              <title>
                {isHourly ? minuteText(startMs) : dayText(startMs)}
                {`: ${counts.join(", ")}`}
              </title>
              {stacked(bucket, series).map(({ fill, count, below }) => (
                <rect
                  fill={fill}
                  x={at + (1 - BAR_WIDTH) / 2}
                  y={most - below - count}
                  width={BAR_WIDTH}
                  height={count}
                />
              ))}
            </g>
          );
        })}
      </svg>
      <p class="between faint">
        {isHourly
          ? <Time ms={buckets[0]?.startMs ?? 0} as="minute" />
          : <span>{name} ago, days in UTC</span>}
        <span>{last}</span>
      </p>
    </figure>
  );
}

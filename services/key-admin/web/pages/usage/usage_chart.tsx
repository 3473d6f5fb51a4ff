/** Usage as bar charts, whose bars may be stacked by model, endpoint, key or account. */

import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import type { Counts } from "../../../domain/keys/usage.ts";
import { labelOf, moneyIn, number } from "../../view/texts.tsx";
import type { MarkTexts } from "./mark_text.ts";
import type { ShownReport, ShownSpan } from "./shown_report.ts";

/** A part of each bar. */
interface Series {
  label: string;
  /** A CSS colour. */
  color: string;
  /** As `marks` of the span. */
  values: readonly number[];
}

/** A chart. The lowest part of its bars comes first. */
interface Chart {
  title: string;
  series: readonly Series[];
  /** A number of it in full, and beside its lines. */
  format: (value: number) => string;
  short: (value: number) => string;
}

/** A measure: a number of each bar, or of a part of it. */
interface Measure extends Pick<Chart, "title" | "format" | "short"> {
  countIn: (counts: Counts) => number;
  /** The parts of a bar that is not stacked by anything else. */
  parts?: readonly {
    label: string;
    color: string;
    countIn: (counts: Counts) => number;
  }[];
}

/** A part of all bars by its name, such as a model. */
export interface NamedGroup {
  name: string;
  isOthers: boolean;
  buckets: readonly Counts[];
}

const MADE = "var(--accent)";
const FAINT = "color-mix(in srgb, var(--accent) 50%, var(--surface))";
const SHORT = new Intl.NumberFormat("en", { notation: "compact" });
const short = (value: number): string => SHORT.format(value);

const REQUESTS: Measure = {
  title: "Requests",
  format: number,
  short,
  countIn: ({ requests = 0, refused = 0 }) => requests + refused,
  parts: [
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
const TOKENS: Measure = {
  title: "Tokens",
  format: number,
  short,
  countIn: ({ inputTokens = 0, outputTokens = 0 }) =>
    inputTokens + outputTokens,
  parts: [
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

function costIn(currency: string): Measure {
  const amount = moneyIn(currency);
  return {
    title: "Cost",
    format: amount,
    short: amount,
    countIn: ({ cost = 0 }) => cost,
  };
}

const madeOf = (unit: UsageUnit): Measure => ({
  title: labelOf(unit),
  format: number,
  short,
  countIn: (counts) => counts[unit] ?? 0,
});

/** The colours of stacked parts are `--part-1` and so on. */
const colorOf = ({ isOthers }: NamedGroup, at: number): string =>
  isOthers ? "var(--part-others)" : `var(--part-${at + 1})`;

function chartOf(
  { title, format, short, countIn, parts }: Measure,
  { buckets }: ShownReport,
  groups: readonly NamedGroup[],
): Chart {
  const plain = parts ?? [{ label: title, color: MADE, countIn }];
  const series = groups.length === 0
    ? plain.map(({ label, color, countIn }) => ({
      label,
      color,
      values: buckets.map(countIn),
    }))
    : groups.map((group, at) => ({
      label: group.name,
      color: colorOf(group, at),
      values: group.buckets.map(countIn),
    }));
  return { title, series, format, short };
}

/**
 * A chart of requests, one of tokens, one of cost if there was any, and one of each of
 * these units. With groups, their bars are stacked by these.
 */
export function UsageCharts({ report, texts, units, groups, currency }: {
  report: ShownReport;
  texts: MarkTexts;
  units: readonly UsageUnit[];
  groups: readonly NamedGroup[];
  currency: string;
}) {
  const measures = [
    REQUESTS,
    TOKENS,
    ...(report.total.cost ? [costIn(currency)] : []),
    ...units.map(madeOf),
  ];
  return (
    <>
      {measures.map((measure) => (
        <BarChart
          key=""
          chart={chartOf(measure, report, groups)}
          span={report.span}
          texts={texts}
          isStacked={groups.length > 0}
        />
      ))}
    </>
  );
}

/** The width of a bar, where a bucket is 1 wide. */
const BAR_WIDTH = 0.7;
/** The height of a chart in its own units: browsers lose bars of billions of them. */
const HEIGHT = 1_000;

/**
 * The parts of all bars of each series, as one shape: a year of bars has thousands.
 * They stand on those of the series before, in a chart that reaches up to `top`.
 */
function shapesOf(series: readonly Series[], top: number) {
  const feet = new Map<number, number>();
  return series.map(({ color, values }) => {
    const parts = values.map((value, at) => {
      if (value <= 0) return "";
      const foot = feet.get(at) ?? HEIGHT;
      const height = HEIGHT * value / top;
      feet.set(at, foot - height);
      const left = at + (1 - BAR_WIDTH) / 2;
      return `M${digits(left)} ${digits(foot)}v${
        digits(-height)
      }h${BAR_WIDTH}V${digits(foot)}z`;
    });
    return { color, path: parts.join("") };
  }).filter(({ path }) => path !== "");
}

/** A coordinate in a few digits, which are less than a pixel. */
const digits = (value: number): string => String(Math.round(value * 100) / 100);

/** At most this many intervals are between the lines of a chart. */
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

/** The name of the bars, and what the one is called that is still filling. */
const UNITS: Readonly<
  Record<ShownSpan["unit"], { name: string; current: string }>
> = {
  hour: { name: "Hours", current: "Now" },
  day: { name: "Days", current: "Today" },
  week: { name: "Weeks", current: "This week" },
};

/** Keeps the line of values open while there are none. */
const NO_VALUES = "\u00A0";

/** The texts below a chart, evenly from its first bar to its last one. */
function timesOf(span: ShownSpan, texts: MarkTexts): string[] {
  const last = span.marks.length - 1;
  const count = Math.min(TIMES, span.marks.length);
  return Array.from({ length: count }, (_, at) => {
    const place = count === 1 ? last : Math.round(at * last / (count - 1));
    if (place < last || !span.isOpen) return texts.short[place] ?? "";
    return UNITS[span.unit].current;
  });
}

/** Words the values of a bar: `Nov 28: Input 5, Output 7`. */
function wordsOf(
  at: number,
  { series, format }: Chart,
  { texts, isStacked }: Pick<ChartProps, "texts" | "isStacked">,
): string {
  const counts = series
    .map(({ label, values }) => ({ label, count: values[at] ?? 0 }));
  const shown = isStacked ? counts.filter(({ count }) => count > 0) : counts;
  const parts = shown.map(({ label, count }) => `${label} ${format(count)}`);
  const sum = counts.reduce((sum, { count }) => sum + count, 0);
  const inAll = isStacked && shown.length > 1 ? ` (in all ${format(sum)})` : "";
  return `${texts.full[at]}: ${parts.join(", ") || "none"}${inAll}`;
}

interface ChartProps {
  chart: Chart;
  span: ShownSpan;
  texts: MarkTexts;
  isStacked: boolean;
}

/**
 * A bar chart with axes. The bars and lines are an SVG, one unit wide for each bucket,
 * that is stretched to its box; the labels are text beside
 * it, so that they are not. A bar names its values under the pointer; with the script,
 * also for the arrow keys, in the order of the legend, which is that of its parts from
 * the bottom up. The table below has the same numbers.
 */
function BarChart({ chart, span, texts, isStacked }: ChartProps) {
  const { title, series } = chart;
  const heading = `${title} per ${span.unit}`;
  const bars = span.marks.length;
  const sums = span.marks.map((_, at) =>
    series.reduce((sum, { values }) => sum + (values[at] ?? 0), 0)
  );
  const ticks = ticksOf(Math.max(...sums));
  const top = ticks.at(-1) ?? 1;
  return (
    <figure class="card chart" data-chart>
      <figcaption class="between">
        <strong>{heading}</strong>
        <Legend series={series} isStacked={isStacked} />
      </figcaption>
      <output class="faint">{NO_VALUES}</output>
      <div class="plot">
        <div class="ticks faint" aria-hidden="true">
          {ticks.toReversed().map((tick) => (
            <span key={tick}>{chart.short(tick)}</span>
          ))}
        </div>
        <svg
          class={isStacked ? "bars stacked" : "bars"}
          viewBox={`0 0 ${bars} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          tabindex={0}
          aria-label={`${heading}; the same numbers are in the table below`}
        >
          {ticks.map((tick) => HEIGHT * tick / top).map((y) => (
            <line key={y} class="tick" x2={bars} y1={y} y2={y} />
          ))}
          {span.marks.map((_, at) => (
            <rect class="reach" x={at} width="1" height={HEIGHT}>
              <title>{wordsOf(at, chart, { texts, isStacked })}</title>
            </rect>
          ))}
          {shapesOf(series, top).map(({ color, path }) => (
            <path key={color} fill={color} d={path} />
          ))}
        </svg>
        <div class="between faint times">
          {timesOf(span, texts).map((text) => <span key="">{text}</span>)}
        </div>
      </div>
      <p class="faint">
        {UNITS[span.unit].name} in {span.zone}
      </p>
    </figure>
  );
}

/**
 * The meaning of the colours. Stacked parts are numbered from the bottom up; those that
 * no bar of this chart has are left out.
 */
const Legend = (
  { series, isStacked }: { series: readonly Series[]; isStacked: boolean },
) => (
  <span class="row faint legend">
    {series.map(({ label, color, values }, at) =>
      (!isStacked || values.some((value) => value > 0)) && (
        <span key={label}>
          <svg width="10" height="10" aria-hidden="true">
            <rect fill={color} width="10" height="10" rx="3" />
          </svg>{" "}
          {isStacked && `${at + 1} `}
          <bdi>{label}</bdi>
        </span>
      )
    )}
  </span>
);

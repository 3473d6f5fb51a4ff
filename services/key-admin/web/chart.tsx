import type { Bucket, Usage } from "../domain/keys/usage.ts";
import { number, shortNumber } from "./values.tsx";

/** A stack of one bar: its parts from the bottom up. */
export interface Series {
  /** Also the class that colours it. */
  name: "ok" | "error" | "input" | "output";
  label: string;
  of: (bucket: Bucket) => number;
}

const WIDTH = 720;
const HEIGHT = 210;
const LEFT = 48;
const BOTTOM = 30;
const TOP = 8;
const GRID_LINES = 4;
const BAR_WIDTH_MAX = 22;
/** Of the room that a bar has. */
const BAR_SHARE = 0.66;

/**
 * A bar chart as SVG, drawn by the server. Everything it shows is in the table
 * behind it too, which is what a screen reader is sent to.
 */
export function BarChart(
  { title, usage, series }: {
    title: string;
    usage: Usage;
    series: readonly Series[];
  },
) {
  const { buckets } = usage;
  const top = niceTop(Math.max(...buckets.map((b) => sumOf(b, series))));
  const step = (WIDTH - LEFT) / buckets.length;
  const barWidth = Math.min(BAR_WIDTH_MAX, step * BAR_SHARE);
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <span class="legend">
          {series.map(({ name, label }) => (
            <span key={name}>
              <i class={`swatch ${name}`} /> {label}
            </span>
          ))}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`${title}; the same numbers are in the table below`}
      >
        <Grid top={top} />
        {buckets.map((bucket, at) => (
          <Bar
            key={String(bucket.startMs)}
            bucket={bucket}
            series={series}
            top={top}
            x={LEFT + at * step + (step - barWidth) / 2}
            width={barWidth}
          />
        ))}
        <TimeAxis usage={usage} step={step} />
      </svg>
    </figure>
  );
}

function Grid({ top }: { top: number }) {
  const lines = Array.from({ length: GRID_LINES + 1 }, (_, n) => n);
  return (
    <g>
      {lines.map((n) => {
        const y = yOf(top * n / GRID_LINES, top);
        return (
          <g key={String(n)}>
            <line class="grid-line" x1={LEFT} x2={WIDTH} y1={y} y2={y} />
            <text class="axis" x={LEFT - 8} y={y + 4} text-anchor="end">
              {shortNumber(top * n / GRID_LINES)}
            </text>
          </g>
        );
      })}
    </g>
  );
}

function Bar({ bucket, series, top, x, width }: {
  bucket: Bucket;
  series: readonly Series[];
  top: number;
  x: number;
  width: number;
}) {
  let below = 0;
  const parts = series.map((one) => {
    const from = below;
    below += one.of(bucket);
    return { name: one.name, from, to: below };
  });
  const said = series.map(({ label, of }) => `${label} ${number(of(bucket))}`);
  return (
    <g>
      <title data-time={new Date(bucket.startMs).toISOString()}>
        {`${utcText(bucket.startMs)}: ${said.join(", ")}`}
      </title>
      <rect
        class="bar room"
        x={x - 3}
        y={TOP}
        width={width + 6}
        height={HEIGHT - BOTTOM - TOP}
      />
      {parts.filter(({ from, to }) => to > from).map(({ name, from, to }) => (
        <rect
          key={name}
          class={`bar ${name}`}
          x={x}
          y={yOf(to, top)}
          width={width}
          height={Math.max(1, yOf(from, top) - yOf(to, top))}
          rx={2}
        />
      ))}
    </g>
  );
}

/** Every so many bars one is named. */
const LABEL_EVERY = { "24h": 4, "30d": 5 } as const;

function TimeAxis(
  { usage, step }: { usage: Usage; step: number },
) {
  const every = LABEL_EVERY[usage.range];
  return (
    <g>
      {usage.buckets.map(({ startMs }, at) =>
        (usage.buckets.length - 1 - at) % every !== 0 ? null : (
          <text
            key={String(startMs)}
            class="axis"
            x={LEFT + (at + 0.5) * step}
            y={HEIGHT - 6}
            text-anchor="middle"
            data-time={new Date(startMs).toISOString()}
            data-as={usage.range === "24h" ? "hour" : "date"}
          >
            {usage.range === "24h"
              ? utcText(startMs).slice(11, 16)
              : utcText(startMs).slice(5, 10)}
          </text>
        )
      )}
    </g>
  );
}

const yOf = (value: number, top: number): number =>
  Math.round((HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top) * 10) /
  10;

const sumOf = (bucket: Bucket, series: readonly Series[]): number =>
  series.reduce((sum, { of }) => sum + of(bucket), 0);

/** The next of 4, 8, 20, 40, 80, 200 …: four grid lines at whole numbers. */
function niceTop(value: number): number {
  if (value <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 8, 10].find((n) => n * power >= value) ?? 10;
  return Math.max(4, step * power);
}

const utcText = (ms: number): string =>
  new Date(ms).toISOString().slice(0, 16).replace("T", " ");

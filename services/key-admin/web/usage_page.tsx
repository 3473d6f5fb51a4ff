import {
  type Bucket,
  readUsage,
  type Usage,
  type UsageRange,
} from "../domain/keys/usage.ts";
import type { ConsoleContext, Handler } from "./context.ts";
import { showPage } from "./layout.tsx";
import {
  type Column,
  Empty,
  number,
  Table,
  Tabs,
  Time,
  utcText,
} from "./parts.tsx";

/** Usage of all keys together. */
const showUsage: Handler = async (c) => {
  const { deps: { redis, now }, signedIn: { session } } = c.var;
  const range = rangeOf(c);
  const usage = await readUsage(redis, session.ownerId, null, range, now());
  return showPage(
    c,
    {
      title: "Usage",
      section: "usage",
      lead:
        "All your keys together, including deleted ones. The page of a key shows its own numbers.",
    },
    <UsageView usage={usage} base="/usage" />,
  );
};

export const usageRoutes = { "/usage": { GET: showUsage } };

/** The range a usage view shows. */
export const rangeOf = (c: ConsoleContext): UsageRange =>
  c.req.query("range") === "30d" ? "30d" : "24h";

/** How the buckets of a range are named, and how many there are per label. */
const RANGES = {
  "24h": { name: "24 hours", unit: "hour", head: "Hour from", labelEvery: 4 },
  "30d": { name: "30 days", unit: "day", head: "Day (UTC)", labelEvery: 5 },
} as const;

const COUNTS = [
  ["Requests", "requests"],
  ["Errors", "errors"],
  ["Input tokens", "inputTokens"],
  ["Output tokens", "outputTokens"],
] as const;

/** A part of each bar, from the bottom up. */
type Series = readonly [
  label: string,
  color: string,
  of: (bucket: Bucket) => number,
];

const REQUESTS: readonly Series[] = [
  ["Successful", "var(--accent)", (bucket) => bucket.requests - bucket.errors],
  ["Errors", "var(--bad)", (bucket) => bucket.errors],
];
const TOKENS: readonly Series[] = [
  ["Input", "var(--accent-middle)", (bucket) => bucket.inputTokens],
  ["Output", "var(--accent)", (bucket) => bucket.outputTokens],
];

/** Totals, charts and a table. `base` is the address of the page. */
export const UsageView = ({ usage, base }: { usage: Usage; base: string }) => (
  <>
    <Tabs
      label="Time"
      current={usage.range}
      tabs={[
        ["24h", "Last 24 hours", `${base}?range=24h`],
        ["30d", "Last 30 days", `${base}?range=30d`],
      ]}
    />
    <dl class="row tiles">
      {COUNTS.map(([label, name]) => (
        <div class="card">
          <dt>{label}</dt>
          <dd>{number(usage.total[name])}</dd>
        </div>
      ))}
    </dl>
    {usage.total.requests === 0
      ? (
        <Empty title={`No requests in the last ${RANGES[usage.range].name}`}>
          <p class="lead">Requests appear here within seconds.</p>
        </Empty>
      )
      : (
        <>
          <BarChart what="Requests" usage={usage} series={REQUESTS} />
          <BarChart what="Tokens" usage={usage} series={TOKENS} />
          <UsageTable usage={usage} />
        </>
      )}
  </>
);

const UsageTable = ({ usage: { range, buckets } }: { usage: Usage }) => (
  <details>
    <summary>Show as a table</summary>
    <Table
      caption={`Usage per ${RANGES[range].unit}, newest first`}
      rows={buckets.toReversed()}
      columns={[
        [RANGES[range].head, ({ startMs }) =>
          range === "24h"
            ? <Time ms={startMs} as="minute" />
            : DAY.format(startMs), "head"],
        ...COUNTS.map(([label, name]): Column<Bucket> => [
          label,
          (bucket) =>
            number(bucket[name]),
          "num",
        ]),
      ]}
    />
  </details>
);

const DAY = new Intl.DateTimeFormat("en", {
  month: "short",
  day: "numeric",
  timeZone: "UTC",
});
const SHORT = new Intl.NumberFormat("en-US", {
  notation: "compact",
  maximumFractionDigits: 1,
});

/** Dimensions of the drawing in its own units. The y axis points down. */
const WIDTH = 720;
const HEIGHT = 210;
const LEFT = 48;
const TOP = 8;
const FLOOR = 180;
/** Of the grid lines, as shares of the highest one. */
const GRID = [0, 0.25, 0.5, 0.75, 1];

/** A bar chart as SVG. The table below it has the same numbers for screen readers. */
function BarChart({ what, usage: { buckets, range }, series }: {
  what: string;
  usage: Usage;
  series: readonly Series[];
}) {
  const { unit, labelEvery } = RANGES[range];
  const title = `${what} per ${unit}`;
  const sumOf = (bucket: Bucket) =>
    series.reduce((sum, [, , of]) => sum + of(bucket), 0);
  const top = niceTop(Math.max(...buckets.map(sumOf)));
  const yOf = (value: number) => FLOOR - (FLOOR - TOP) * value / top;
  const step = (WIDTH - LEFT) / buckets.length;
  /** An hour in the reader's zone, which the script knows, or a day. */
  const timeOf = ({ startMs }: Bucket, as: "minute" | "hour", suffix = "") =>
    range === "24h"
      ? {
        "data-time": new Date(startMs).toISOString(),
        ...{ "data-as": as, "data-suffix": suffix },
        children: `${utcText(startMs)} UTC${suffix}`,
      }
      : { children: DAY.format(startMs) + suffix };
  const bar = { x: -0.33 * step, width: 0.66 * step, rx: 2 };
  return (
    <figure class="card">
      <figcaption class="between">
        <strong>{title}</strong>
        <span class="row faint">
          {series.map(([label, fill]) => (
            <span>
              <svg width="10" height="10" aria-hidden="true">
                <rect fill={fill} width="10" height="10" rx="3" />
              </svg>{" "}
              {label}
            </span>
          ))}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`${title}; the same numbers are in the table below`}
      >
        {GRID.map((share) => (
          <g class="axis" transform={`translate(0 ${yOf(share * top)})`}>
            <path d={`M${LEFT} 0H${WIDTH}`} />
            <text x={LEFT - 8} y={4} text-anchor="end">
              {SHORT.format(share * top)}
            </text>
          </g>
        ))}
        {buckets.map((bucket, at) => {
          const hasLabel = (buckets.length - 1 - at) % labelEvery === 0;
          const counts = series.map(([label, , of]) =>
            `${label} ${number(of(bucket))}`
          );
          let sum = 0;
          return (
            <g transform={`translate(${LEFT + (at + 0.5) * step} 0)`}>
              <title {...timeOf(bucket, "minute", `: ${counts.join(", ")}`)} />
              {series.map(([, fill, of]) => (
                <rect
                  {...{ ...bar, fill, height: FLOOR - yOf(of(bucket)) }}
                  y={yOf(sum += of(bucket))}
                />
              ))}
              {hasLabel && (
                <text
                  {...{ class: "axis", y: HEIGHT - 6, "text-anchor": "middle" }}
                  {...timeOf(bucket, "hour")}
                />
              )}
            </g>
          );
        })}
      </svg>
    </figure>
  );
}

/** The next of 4, 8, 20, 40, 80, 200 …: four grid lines at whole numbers. */
function niceTop(value: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  const step = [1, 2, 4, 8, 10].find((n) => n * power >= value) ?? 10;
  return Math.max(4, step * power);
}

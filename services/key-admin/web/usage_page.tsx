import {
  type Bucket,
  readUsage,
  type Usage,
  type UsageRange,
} from "../domain/keys/usage.ts";
import type { ConsoleContext, Handler, Routes } from "./context.ts";
import { Curl } from "./key_requests.tsx";
import { showPage } from "./layout.tsx";
import {
  type Column,
  Head,
  number,
  Table,
  Tabs,
  Time,
  utcText,
} from "./parts.tsx";

/** Usage of all keys together. */
const showUsage: Handler = async (c) => {
  const { deps: { redis, now, apiUrl }, signedIn: { session } } = c.var;
  const range = rangeOf(c);
  const usage = await readUsage(redis, session.ownerId, null, range, now());
  return showPage(
    c,
    { title: "Usage", section: "usage" },
    <>
      <Head
        title="Usage"
        lead="All your keys together, including deleted ones. The page of a key shows its own numbers."
      />
      <UsageView usage={usage} base="/usage" apiUrl={apiUrl} />
    </>,
  );
};

export const usageRoutes: Routes = { "/usage": { GET: showUsage } };

/** The range a usage view shows. */
export const rangeOf = (c: ConsoleContext): UsageRange =>
  c.req.query("range") === "30d" ? "30d" : "24h";

/** How the buckets of a range are named. */
const UNITS = {
  "24h": { range: "24 hours", unit: "hour", time: "minute", labelEvery: 4 },
  "30d": { range: "30 days", unit: "day (UTC)", time: "date", labelEvery: 5 },
} as const;

const COUNTS = [
  ["Requests", "requests"],
  ["Errors", "errors"],
  ["Input tokens", "inputTokens"],
  ["Output tokens", "outputTokens"],
] as const;

/** A part of each bar, from the bottom up. */
interface Series {
  label: string;
  color: string;
  of: (bucket: Bucket) => number;
}

const CHARTS: readonly [what: string, series: readonly Series[]][] = [
  ["Requests", [
    {
      label: "Successful",
      color: "var(--accent)",
      of: ({ requests, errors }) => Math.max(0, requests - errors),
    },
    { label: "Errors", color: "var(--bad)", of: ({ errors }) => errors },
  ]],
  ["Tokens", [
    {
      label: "Input",
      color: "var(--accent-middle)",
      of: ({ inputTokens }) => inputTokens,
    },
    {
      label: "Output",
      color: "var(--accent)",
      of: ({ outputTokens }) => outputTokens,
    },
  ]],
];

/** Totals, charts and a table. `base` is the address of the page; `apiUrl` adds an example to an empty one. */
export function UsageView(
  { usage, base, apiUrl }: { usage: Usage; base: string; apiUrl?: string },
) {
  const { total, range } = usage;
  return (
    <>
      <Tabs
        label="Time"
        current={range}
        tabs={[
          ["24h", "Last 24 hours", `${base}?range=24h`],
          ["30d", "Last 30 days", `${base}?range=30d`],
        ]}
      />
      <dl class="tiles">
        {COUNTS.map(([label, name]) => (
          <div class="card">
            <dt>{label}</dt>
            <dd>{number(total[name])}</dd>
          </div>
        ))}
      </dl>
      {total.requests === 0
        ? (
          <section class="card empty">
            <h2>No requests in the last {UNITS[range].range}</h2>
            <p>Requests appear here within seconds.</p>
            {apiUrl && <Curl apiUrl={apiUrl} />}
          </section>
        )
        : (
          <>
            {CHARTS.map(([what, series]) => (
              <BarChart what={what} usage={usage} series={series} />
            ))}
            <UsageTable usage={usage} />
          </>
        )}
    </>
  );
}

const UsageTable = ({ usage: { range, buckets } }: { usage: Usage }) => (
  <details>
    <summary>Show as a table</summary>
    <Table
      caption={`Usage per ${UNITS[range].unit}, newest first`}
      rows={buckets.toReversed()}
      columns={[
        [range === "24h" ? "Hour from" : "Day (UTC)", "head", ({ startMs }) =>
          range === "24h"
            ? <Time ms={startMs} as="minute" />
            : utcText(startMs).slice(0, 10)],
        ...COUNTS.map(([label, name]): Column<Bucket> => [
          label,
          "num",
          (bucket) =>
            number(bucket[name]),
        ]),
      ]}
    />
  </details>
);

const SHORT = new Intl.NumberFormat("en-US", {
  notation: "compact",
  maximumFractionDigits: 1,
});

/** Of the drawing, in its own units. The y axis points down. */
const WIDTH = 720;
const HEIGHT = 210;
const LEFT = 48;
const TOP = 8;
const FLOOR = 180;

/** A bar chart as SVG. The table below it has the same numbers for screen readers. */
function BarChart({ what, usage: { buckets, range }, series }: {
  what: string;
  usage: Usage;
  series: readonly Series[];
}) {
  const { unit, time, labelEvery } = UNITS[range];
  const title = `${what} per ${unit}`;
  const most = niceTop(
    Math.max(
      ...buckets.map((bucket) =>
        series.reduce((sum, { of }) => sum + of(bucket), 0)
      ),
    ),
  );
  const step = (WIDTH - LEFT) / buckets.length;
  const heightOf = (value: number) =>
    Math.round((FLOOR - TOP) * value / most * 10) / 10;
  return (
    <figure class="card chart">
      <figcaption class="row between">
        <strong>{title}</strong>
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
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={`${title}; the same numbers are in the table below`}
      >
        {[0, most / 4, most / 2, most * 3 / 4, most].map((value) => {
          const y = FLOOR - heightOf(value);
          return (
            <g class="axis">
              <line x1={LEFT} x2={WIDTH} y1={y} y2={y} />
              <text x={LEFT - 8} y={y + 4} text-anchor="end">
                {SHORT.format(value)}
              </text>
            </g>
          );
        })}
        {buckets.map((bucket, at) => {
          const { startMs } = bucket;
          const x = LEFT + at * step;
          const parts = series.map(({ label, of }) =>
            `${label} ${number(of(bucket))}`
          );
          const suffix = `: ${parts.join(", ")}`;
          let y = FLOOR;
          return (
            <g>
              <title
                data-time={new Date(startMs).toISOString()}
                data-as={time}
                data-suffix={suffix}
              >
                {utcText(startMs) + suffix}
              </title>
              {series.filter(({ of }) => of(bucket) > 0).map(
                ({ of, color }) => {
                  const height = heightOf(of(bucket));
                  y -= height;
                  const width = 0.66 * step;
                  return (
                    <rect
                      {...{ fill: color, y, width, height, rx: 2 }}
                      x={x + 0.17 * step}
                    />
                  );
                },
              )}
              {(buckets.length - 1 - at) % labelEvery === 0 && (
                <text
                  class="axis"
                  x={x + step / 2}
                  y={HEIGHT - 6}
                  text-anchor="middle"
                  data-time={new Date(startMs).toISOString()}
                  data-as={range === "24h" ? "hour" : "date"}
                >
                  {utcText(startMs).slice(
                    ...range === "24h" ? [11] : [5, 10],
                  )}
                </text>
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

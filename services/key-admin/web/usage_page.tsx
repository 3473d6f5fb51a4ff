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
type Series = readonly [
  label: string,
  color: string,
  of: (bucket: Bucket) => number,
];

const CHARTS: readonly [what: string, ...Series[]][] = [
  [
    "Requests",
    [
      "Successful",
      "var(--accent)",
      (bucket) => Math.max(0, bucket.requests - bucket.errors),
    ],
    ["Errors", "var(--bad)", ({ errors }) => errors],
  ],
  [
    "Tokens",
    ["Input", "var(--accent-middle)", ({ inputTokens }) => inputTokens],
    ["Output", "var(--accent)", ({ outputTokens }) => outputTokens],
  ],
];

/** Totals, charts and a table. `base` is the address of the page. */
export function UsageView({ usage, base }: { usage: Usage; base: string }) {
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
      <dl class="row tiles">
        {COUNTS.map(([label, name]) => (
          <div class="card">
            <dt>{label}</dt>
            <dd>{number(total[name])}</dd>
          </div>
        ))}
      </dl>
      {total.requests === 0
        ? (
          <Empty title={`No requests in the last ${UNITS[range].range}`}>
            <p class="lead">Requests appear here within seconds.</p>
          </Empty>
        )
        : (
          <>
            {CHARTS.map(([what, ...series]) => (
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
        [range === "24h" ? "Hour from" : "Day (UTC)", ({ startMs }) =>
          range === "24h"
            ? <Time ms={startMs} as="minute" />
            : utcText(startMs).slice(0, 10), "head"],
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

/** A bar chart as SVG. The table below it has the same numbers for screen readers. */
function BarChart({ what, usage: { buckets, range }, series }: {
  what: string;
  usage: Usage;
  series: readonly Series[];
}) {
  const { unit, time, labelEvery } = UNITS[range];
  const title = `${what} per ${unit}`;
  const top = niceTop(
    Math.max(
      ...buckets.map((bucket) =>
        series.reduce((sum, [, , of]) => sum + of(bucket), 0)
      ),
    ),
  );
  const yOf = (value: number) => FLOOR - (FLOOR - TOP) * value / top;
  const step = (WIDTH - LEFT) / buckets.length;
  return (
    <figure class="card chart">
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
        {[0, 0.25, 0.5, 0.75, 1].map((share) => (
          <g class="axis">
            <path d={`M${LEFT} ${yOf(share * top)}H${WIDTH}`} />
            <text x={LEFT - 8} y={yOf(share * top) + 4} text-anchor="end">
              {SHORT.format(share * top)}
            </text>
          </g>
        ))}
        {buckets.map((bucket, at) => {
          const moment = {
            "data-time": new Date(bucket.startMs).toISOString(),
          };
          const x = LEFT + at * step;
          let sum = 0;
          const suffix = `: ${
            series.map(([label, , of]) => `${label} ${number(of(bucket))}`)
              .join(", ")
          }`;
          return (
            <g>
              <title {...moment} data-as={time} data-suffix={suffix}>
                {utcText(bucket.startMs) + suffix}
              </title>
              {series.map(([, fill, of]) => (
                <rect
                  {...{ fill, x: x + 0.17 * step, width: 0.66 * step, rx: 2 }}
                  height={yOf(0) - yOf(of(bucket))}
                  y={yOf(sum += of(bucket))}
                />
              ))}
              {(buckets.length - 1 - at) % labelEvery === 0 && (
                <text
                  {...{ class: "axis", x: x + step / 2, y: HEIGHT - 6 }}
                  {...{ ...moment, "text-anchor": "middle" }}
                  data-as={range === "24h" ? "hour" : "date"}
                >
                  {utcText(bucket.startMs).slice(5, range === "24h" ? 16 : 10)}
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

import type { Child } from "hono/jsx";
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
  Count,
  Head,
  number,
  shortNumber,
  Table,
  Tabs,
  Time,
} from "./parts.tsx";

/** Usage of all keys together. */
const showUsage: Handler = async (c, deps) => {
  const { ownerId } = c.get("signedIn").session;
  const range = rangeOf(c);
  const usage = await readUsage(deps.redis, ownerId, null, range, deps.now());
  return showPage(
    c,
    deps,
    { title: "Usage", section: "usage" },
    <>
      <Head
        title="Usage"
        lead="All your keys together, including deleted ones. The page of a key shows its own numbers."
      />
      {usage.total.requests === 0 && (
        <section class="card empty">
          <h2>
            No requests in the last{" "}
            {usage.range === "24h" ? "24 hours" : "30 days"}
          </h2>
          <p>They appear here within seconds. Send one:</p>
          <Curl apiUrl={deps.apiUrl} />
        </section>
      )}
      <UsageView usage={usage} base="/usage" />
    </>,
  );
};

export const usageRoutes: Routes = { "/usage": { GET: showUsage } };

/** The range a usage view shows. */
export const rangeOf = (c: ConsoleContext): UsageRange =>
  c.req.query("range") === "30d" ? "30d" : "24h";

const COUNTS = [
  ["Requests", "requests"],
  ["Errors", "errors"],
  ["Input tokens", "inputTokens"],
  ["Output tokens", "outputTokens"],
] as const;

const CHARTS: readonly [what: string, series: readonly Series[]][] = [
  ["Requests", [
    {
      name: "ok",
      label: "Successful",
      of: ({ requests, errors }) => Math.max(0, requests - errors),
    },
    { name: "error", label: "Errors", of: ({ errors }) => errors },
  ]],
  ["Tokens", [
    { name: "input", label: "In", of: ({ inputTokens }) => inputTokens },
    { name: "output", label: "Out", of: ({ outputTokens }) => outputTokens },
  ]],
];

/**
 * Totals, charts and a table. `base` is the address of the page; `empty` replaces the
 * charts when there is nothing to show.
 */
export function UsageView(
  { usage, base, empty = null }: {
    usage: Usage;
    base: string;
    empty?: Child;
  },
) {
  const { total } = usage;
  return (
    <>
      <Tabs
        label="Time"
        current={usage.range}
        tabs={[
          ["24h", "Last 24 hours", `${base}?range=24h`],
          ["30d", "Last 30 days", `${base}?range=30d`],
        ]}
      />
      <dl class="tiles">
        {COUNTS.map(([label, name]) => (
          <div class="card">
            <dt>{label}</dt>
            <dd>
              <Count value={total[name]} />
            </dd>
          </div>
        ))}
      </dl>
      {total.requests === 0 ? empty : (
        <>
          <Charts usage={usage} />
          <UsageTable usage={usage} />
        </>
      )}
    </>
  );
}

function Charts({ usage }: { usage: Usage }) {
  const each = usage.range === "24h" ? "per hour" : "per day (UTC)";
  return (
    <>
      {CHARTS.map(([what, series]) => (
        <section class="card">
          <BarChart title={`${what} ${each}`} usage={usage} series={series} />
        </section>
      ))}
    </>
  );
}

function UsageTable({ usage: { range, buckets } }: { usage: Usage }) {
  const [unit, head] = range === "24h"
    ? ["hour", "Hour from"]
    : ["day", "Day (UTC)"];
  return (
    <details class="card">
      <summary>Show as a table</summary>
      <Table
        look=""
        caption={`Usage by ${unit}, newest first`}
        columns={[[head], ...COUNTS.map(([label]) => [label, true] as const)]}
        isWide
      >
        {buckets.toReversed().map((bucket) => (
          <tr>
            <th scope="row">
              {range === "24h"
                ? <Time ms={bucket.startMs} as="minute" />
                : utcText(bucket.startMs).slice(0, 10)}
            </th>
            {COUNTS.map(([, name]) => (
              <td class="num">{number(bucket[name])}</td>
            ))}
          </tr>
        ))}
      </Table>
    </details>
  );
}

/** A part of each bar, from the bottom up. */
interface Series {
  /** Also the name of its colour. */
  name: "ok" | "error" | "input" | "output";
  label: string;
  of: (bucket: Bucket) => number;
}

const WIDTH = 720;
const HEIGHT = 210;
const LEFT = 48;
const TOP = 8;
/** The y position of zero. */
const FLOOR = 180;
const GRID = [0, 0.25, 0.5, 0.75, 1];
/** One label per this many bars. */
const LABEL_EVERY = { "24h": 4, "30d": 5 } as const;

/**
 * A bar chart as SVG. The table below it has the same numbers for screen readers.
 */
function BarChart({ title, usage: { buckets, range }, series }: {
  title: string;
  usage: Usage;
  series: readonly Series[];
}) {
  const sums = buckets.map((bucket) =>
    series.reduce((sum, { of }) => sum + of(bucket), 0)
  );
  const most = niceTop(Math.max(...sums));
  const yOf = (value: number) =>
    Math.round((FLOOR - (FLOOR - TOP) * value / most) * 10) / 10;
  const step = (WIDTH - LEFT) / buckets.length;
  return (
    <figure class="chart">
      <figcaption class="row between">
        <strong>{title}</strong>
        <span class="row faint">
          {series.map(({ name, label }) => (
            <span key={name}>
              <svg width="10" height="10" aria-hidden="true">
                <rect {...look(name)} width="10" height="10" rx="3" />
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
        {GRID.map((share) => {
          const y = yOf(share * most);
          return (
            <g key={String(share)} class="axis">
              <line x1={LEFT} x2={WIDTH} y1={y} y2={y} />
              <text x={LEFT - 8} y={y + 4} text-anchor="end">
                {shortNumber(share * most)}
              </text>
            </g>
          );
        })}
        {buckets.map((bucket, at) => (
          <Bar
            key={String(bucket.startMs)}
            {...{ bucket, series, yOf }}
            x={LEFT + (at + 0.17) * step}
            width={0.66 * step}
          />
        ))}
        {buckets.map(({ startMs }, at) =>
          (buckets.length - 1 - at) % LABEL_EVERY[range] === 0 && (
            <text
              key={String(startMs)}
              class="axis"
              x={LEFT + (at + 0.5) * step}
              y={HEIGHT - 6}
              text-anchor="middle"
              data-time={new Date(startMs).toISOString()}
              data-as={range === "24h" ? "hour" : "date"}
            >
              {utcText(startMs).slice(...range === "24h" ? [11, 16] : [5, 10])}
            </text>
          )
        )}
      </svg>
    </figure>
  );
}

function Bar({ bucket, series, yOf, x, width }: {
  bucket: Bucket;
  series: readonly Series[];
  yOf: (value: number) => number;
  x: number;
  width: number;
}) {
  let below = 0;
  const said = series.map(({ label, of }) => `${label} ${number(of(bucket))}`);
  return (
    <g>
      <title data-time={new Date(bucket.startMs).toISOString()}>
        {`${utcText(bucket.startMs)}: ${said.join(", ")}`}
      </title>
      {series.map(({ name, of }) => {
        const bottom = yOf(below);
        below += of(bucket);
        const y = yOf(below);
        const height = Math.max(1, bottom - y);
        return of(bucket) > 0 &&
          (
            <rect
              key={name}
              {...look(name)}
              {...{ x, y, width, height }}
              rx={2}
            />
          );
      })}
    </g>
  );
}

const look = (name: Series["name"]) => ({
  class: name,
  fill: `var(--bar-${name})`,
});

/** The next of 4, 8, 20, 40, 80, 200 …: four grid lines at whole numbers. */
function niceTop(value: number): number {
  if (value <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 8, 10].find((n) => n * power >= value) ?? 10;
  return Math.max(4, step * power);
}

const utcText = (ms: number): string =>
  new Date(ms).toISOString().slice(0, 16).replace("T", " ");

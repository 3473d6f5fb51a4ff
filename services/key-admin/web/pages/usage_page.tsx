import { USAGE_UNITS } from "@gateway/shared/keys/limiter_state";
import { minuteText } from "../../domain/keys/key_record.ts";
import type {
  Bucket,
  Counts,
  Usage,
  UsageRange,
} from "../../domain/keys/usage.ts";
import { MAIN_COUNTS, readUsage } from "../../domain/keys/usage.ts";
import { usageCsv } from "../../domain/keys/usage_csv.ts";
import type { ConsoleContext, Handler } from "../context.ts";
import { answerCsv, findKey } from "../context.ts";
import { showPage } from "../layout.tsx";
import { Failures } from "./failures_page.tsx";
import { limitsCard } from "./limits_view.tsx";
import { type Column, Empty, Table, Tabs } from "../lists.tsx";
import { Facts } from "../parts.tsx";
import { labelOf, number, Time, unitsText } from "../texts.tsx";

const showUsage: Handler = async (c) => {
  const { deps: { redis, now }, signedIn: { session } } = c.var;
  const range = rangeOf(c);
  const usage = await readUsage(redis, session.ownerId, null, range, now());
  return showPage(
    c,
    {
      title: "Usage",
      lead:
        "All your keys together, including deleted ones. Each key's page shows its own numbers.",
    },
    <>
      {await limitsCard(c)}
      <UsageView usage={usage} base="/usage" />
    </>,
  );
};

const exportUsage: Handler = async (c) => {
  const { deps: { redis, now }, signedIn: { session: { ownerId } } } = c.var;
  const key = c.req.param("id") === undefined ? null : await findKey(c);
  const name = key === null ? "usage.csv" : `usage-${key.id}.csv`;
  return answerCsv(c, name, usageCsv(redis, ownerId, key, now()));
};

export const usageRoutes = {
  "/usage": { GET: showUsage },
  "/usage/export.csv": { GET: exportUsage },
  "/keys/:id/export.csv": { GET: exportUsage },
};

export const rangeOf = (c: ConsoleContext): UsageRange =>
  c.req.query("range") === "30d" ? "30d" : "24h";

const RANGES = {
  "24h": { name: "24 hours", unit: "hour", head: "Hour from", last: "Now" },
  "30d": { name: "30 days", unit: "day", head: "Day (UTC)", last: "Today" },
} as const;

/** The units other than tokens that were counted. */
const unitsIn = (counts: Counts) => USAGE_UNITS.filter((unit) => counts[unit]);

const unitsOf = (counts: Counts): string =>
  unitsIn(counts).map((unit) => unitsText(counts[unit] ?? 0, unit)).join(", ");

/** A column for each count, and one for all units. Beside units, no tokens are shown instead of 0. */
const countColumns = <T,>({ total }: Usage, countsOf: (row: T) => Counts) => [
  ...MAIN_COUNTS.map((name): Column<T> => [
    labelOf(name),
    (row) => {
      const { [name]: count = 0, ...others } = countsOf(row);
      return count === 0 && /Tokens$/.test(name) && unitsOf(others) !== ""
        ? "–"
        : number(count);
    },
    "num",
  ]),
  ...(unitsOf(total) === "" ? [] : ["Units"]).map((label): Column<T> => [
    label,
    (row) => unitsOf(countsOf(row)) || "–",
  ]),
];

/** A part of each bar, from the bottom up. */
type Series = readonly [
  label: string,
  color: string,
  of: (counts: Counts) => number,
];
const MADE = "var(--accent)";
const REQUESTS: readonly Series[] = [
  // A bar cannot have a negative height, whatever the counters say.
  [
    "Successful",
    MADE,
    ({ requests = 0, failed = 0 }) => Math.max(0, requests - failed),
  ],
  ["Failed", "var(--bad)", ({ failed = 0 }) => failed],
  ["Refused", "var(--warn)", ({ refused = 0 }) => refused],
];
const FAINT = "color-mix(in srgb, var(--accent) 50%, var(--surface))";
const TOKENS: readonly Series[] = [
  ["Input", FAINT, ({ inputTokens = 0 }) => inputTokens],
  ["Output", MADE, ({ outputTokens = 0 }) => outputTokens],
];

/** Totals, charts and tables. `base` is the address of the page, `listed` that of the last failed requests. */
export function UsageView({ usage, base, listed }: {
  usage: Usage;
  base: string;
  listed?: string;
}) {
  const { range, total, models, buckets } = usage;
  const { name, unit, head } = RANGES[range];
  const units = unitsIn(total);
  const charts: readonly (readonly [string, readonly Series[]])[] = [
    ["Requests", REQUESTS],
    ["Tokens", TOKENS],
    ...units.map((unit) => {
      const label = labelOf(unit);
      const of = (counts: Counts) => counts[unit] ?? 0;
      return [label, [[label, MADE, of]]] as const;
    }),
  ];
  return (
    <>
      <div class="row between">
        <Tabs
          label="Time"
          current={range}
          tabs={[
            ["24h", "Last 24 hours"],
            ["30d", "Last 30 days"],
          ]}
          to={(range) => `${base}?range=${range}`}
        />
        <a class="button small" href={`${base}/export.csv`}>Download CSV</a>
      </div>
      <Facts
        look="totals"
        facts={Object.fromEntries(
          [...MAIN_COUNTS, ...units].map((name) => [
            labelOf(name),
            number(total[name] ?? 0),
          ]),
        )}
      />
      {!total.requests && !total.refused
        ? (
          <Empty
            title={`No requests in the last ${name}`}
            lead="Requests appear here within seconds."
          />
        )
        : (
          <>
            {charts.map(([what, series]) => barChart(what, usage, series))}
            <Failures counts={total} listed={listed} />
            <Table
              caption="Usage by model, the most used first"
              title={<strong>By model</strong>}
              rows={[...models].sort(([, a], [, b]) =>
                (b.requests ?? 0) - (a.requests ?? 0)
              )}
              columns={[
                [
                  "Model",
                  ([model]) =>
                    model || <span class="faint">No known model</span>,
                ],
                ...countColumns(
                  usage,
                  ([, counts]: [string, Counts]) => counts,
                ),
              ]}
            />
            <details>
              <summary>Show as a table</summary>
              <Table
                caption={`Usage per ${unit}, newest first`}
                rows={buckets.toReversed()}
                columns={[
                  [head, ({ startMs }) =>
                    range === "24h"
                      ? <Time ms={startMs} as="minute" />
                      : DAY.format(startMs)],
                  ...countColumns(usage, (bucket: Bucket) => bucket),
                ]}
              />
            </details>
          </>
        )}
    </>
  );
}

const DAY = new Intl.DateTimeFormat("en", {
  month: "short",
  day: "numeric",
  timeZone: "UTC",
});

/**
 * A bar chart as SVG, one unit wide for each bucket and one high for each count, and
 * stretched to its box. The table below it has the same numbers for screen readers.
 */
function barChart(
  what: string,
  { buckets, range }: Usage,
  series: readonly Series[],
) {
  const { name, unit, last } = RANGES[range];
  const isHourly = range === "24h";
  const title = `${what} per ${unit}`;
  const sums = buckets.map((bucket) =>
    series.reduce((sum, [, , of]) => sum + of(bucket), 0)
  );
  const most = Math.max(1, ...sums);
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
          <span>Highest {number(most)}</span>
        </span>
      </figcaption>
      <svg
        class="bars"
        viewBox={`0 0 ${buckets.length} ${most}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}; the same numbers are in the table below`}
      >
        {buckets.map((bucket, at) => {
          const { startMs } = bucket;
          const counts = series.map(([label, , of]) =>
            `${label} ${number(of(bucket))}`
          );
          let y = most;
          return (
            <g>
              {/* SVG has no `<time>`: the hour stays in UTC. */}
              <title>
                {isHourly ? minuteText(startMs) : DAY.format(startMs)}
                {`: ${counts.join(", ")}`}
              </title>
              {series.map(([, fill, of]) => (
                <rect
                  fill={fill}
                  x={at + 0.15}
                  y={y -= of(bucket)}
                  width={0.7}
                  height={of(bucket)}
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

import type { JSX } from "hono/jsx/jsx-runtime";
import type { Usage, UsageRange } from "../../domain/keys/usage.ts";
import { BarChart } from "./chart.tsx";
import { Count, number, Time } from "./values.tsx";

/**
 * Totals, two charts and the table behind them. `base` is the page's own address
 * for the choice of range, `empty` stands where charts would have nothing to show.
 */
export function UsageView(
  { usage, base, empty = null }: {
    usage: Usage;
    base: string;
    empty?: JSX.Element | null;
  },
): JSX.Element {
  const { total } = usage;
  const tiles: [label: string, value: number][] = [
    ["Requests", total.requests],
    ["Errors", total.errors],
    ["Input tokens", total.inputTokens],
    ["Output tokens", total.outputTokens],
  ];
  return (
    <>
      <RangeTabs range={usage.range} base={base} />
      <dl class="tiles">
        {tiles.map(([label, value]) => (
          <div class="card tile" key={label}>
            <dt>{label}</dt>
            <dd>
              <Count value={value} />
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

function Charts({ usage }: { usage: Usage }): JSX.Element {
  const each = usage.range === "24h" ? "per hour" : "per day (UTC)";
  return (
    <>
      <section class="card">
        <BarChart
          title={`Requests ${each}`}
          usage={usage}
          series={[
            {
              name: "ok",
              label: "Successful",
              of: ({ requests, errors }) => Math.max(0, requests - errors),
            },
            { name: "error", label: "Errors", of: ({ errors }) => errors },
          ]}
        />
      </section>
      <section class="card">
        <BarChart
          title={`Tokens ${each}`}
          usage={usage}
          series={[
            {
              name: "input",
              label: "In",
              of: ({ inputTokens }) => inputTokens,
            },
            {
              name: "output",
              label: "Out",
              of: ({ outputTokens }) => outputTokens,
            },
          ]}
        />
      </section>
    </>
  );
}

function RangeTabs(
  { range, base }: { range: UsageRange; base: string },
): JSX.Element {
  const ranges: [UsageRange, label: string][] = [
    ["24h", "Last 24 hours"],
    ["30d", "Last 30 days"],
  ];
  return (
    <nav class="tabs" aria-label="Time">
      {ranges.map(([value, label]) => (
        <a
          key={value}
          href={`${base}?range=${value}`}
          aria-current={value === range ? "true" : undefined}
        >
          {label}
        </a>
      ))}
    </nav>
  );
}

function UsageTable({ usage }: { usage: Usage }): JSX.Element {
  return (
    <details class="card">
      <summary>Show as a table</summary>
      <div
        class="table-box plain"
        role="region"
        aria-label="Usage as a table"
        tabindex={0}
      >
        <table>
          <caption class="hidden">
            Usage by {usage.range === "24h" ? "hour" : "day"}, newest first
          </caption>
          <thead>
            <tr>
              <th scope="col">
                {usage.range === "24h" ? "Hour from" : "Day (UTC)"}
              </th>
              <th scope="col" class="num">Requests</th>
              <th scope="col" class="num">Errors</th>
              <th scope="col" class="num">Input tokens</th>
              <th scope="col" class="num">Output tokens</th>
            </tr>
          </thead>
          <tbody>
            {usage.buckets.toReversed().map((bucket) => (
              <tr key={String(bucket.startMs)}>
                <th scope="row">
                  {usage.range === "24h"
                    ? <Time ms={bucket.startMs} as="minute" />
                    : new Date(bucket.startMs).toISOString().slice(0, 10)}
                </th>
                <td class="num">{number(bucket.requests)}</td>
                <td class="num">{number(bucket.errors)}</td>
                <td class="num">{number(bucket.inputTokens)}</td>
                <td class="num">{number(bucket.outputTokens)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

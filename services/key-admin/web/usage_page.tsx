import type { Child } from "hono/jsx";
import {
  readUsage,
  type Usage,
  type UsageRange,
} from "../domain/keys/usage.ts";
import { BarChart } from "./chart.tsx";
import type { ConsoleContext, Handler, Routes } from "./context.ts";
import { Curl } from "./key_requests.tsx";
import { showPage } from "./layout.tsx";
import { Head, Tabs } from "./parts.tsx";
import { Count, number, Time } from "./values.tsx";

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

/**
 * Totals, two charts and the table behind them. `base` is the page's own address
 * for the choice of range, `empty` stands where charts would have nothing to show.
 */
export function UsageView(
  { usage, base, empty = null }: {
    usage: Usage;
    base: string;
    empty?: Child;
  },
) {
  const { total } = usage;
  const tiles: [label: string, value: number][] = [
    ["Requests", total.requests],
    ["Errors", total.errors],
    ["Input tokens", total.inputTokens],
    ["Output tokens", total.outputTokens],
  ];
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
        {tiles.map(([label, value]) => (
          <div class="card">
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

function Charts({ usage }: { usage: Usage }) {
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

function UsageTable({ usage }: { usage: Usage }) {
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
              <tr>
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

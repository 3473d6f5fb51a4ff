import type { JSX } from "hono/jsx/jsx-runtime";
import type { Usage } from "../../domain/keys/usage.ts";
import { type Frame, Page } from "./frame.tsx";
import { Curl } from "./curl.tsx";
import { UsageView } from "./usage_view.tsx";

/** Usage of all keys together. */
export function UsagePage({ frame, usage, apiUrl }: {
  frame: Frame;
  usage: Usage;
  apiUrl: string;
}): JSX.Element {
  return (
    <Page title="Usage" frame={frame} section="usage">
      <div class="head">
        <div>
          <h1>Usage</h1>
          <p class="lead">
            All your keys together, deleted ones too. A key's own numbers are on
            its page.
          </p>
        </div>
      </div>
      {usage.total.requests === 0 && (
        <section class="card empty">
          <h2>
            No requests in the last{" "}
            {usage.range === "24h" ? "24 hours" : "30 days"}
          </h2>
          <p>They appear here within seconds. Send one:</p>
          <Curl apiUrl={apiUrl} />
        </section>
      )}
      <UsageView usage={usage} base="/usage" />
    </Page>
  );
}

import { FAILURE_REASONS } from "@gateway/shared/keys/limiter_state";
import { FAILED_REQUESTS } from "@gateway/shared/limits";
import { type Counts, readFailed } from "../../domain/keys/usage.ts";
import { findKey, type Handler } from "../context.ts";
import { showPage } from "../layout.tsx";
import { Noted, Table } from "../lists.tsx";
import { labelOf, number, Time } from "../texts.tsx";

/** Requests that were refused or failed: why, and the last ones of a key. */

const { listedMax, daysListed } = FAILED_REQUESTS;

/** Reasons whose names say too little. */
const REASONS: Readonly<Record<string, string>> = {
  model_server_limit: "Limit of the model server",
  request_bodies: "Too many invalid or very large requests at once",
  server: "The service or the model server failed",
  cut: "An error cut off the answer after it had started",
};

/** A reason in words: a limit and whose it is, or what was wrong. It may be from a later version. */
function wordsOf(reason: string): string {
  const [name = "", whose] = reason.split(".");
  const words = REASONS[name] ?? labelOf(name);
  return whose === "owner" ? `${words}, all your keys together` : words;
}

/** Why requests were refused or failed; nothing if none was. `listed` is where the last ones are. */
export function Failures(
  { counts, listed }: { counts: Counts; listed?: string | undefined },
) {
  const reasons = FAILURE_REASONS.filter((reason) => counts[reason]);
  if (reasons.length === 0) return null;
  return (
    <Table
      caption="Reasons for refused and failed requests"
      title={
        <div class="row between">
          <strong>Refused or failed</strong>
          {listed
            ? <a class="button small" href={listed}>Show requests</a>
            : <span class="help">Each key's page lists its own</span>}
        </div>
      }
      rows={reasons}
      columns={[
        ["Reason", wordsOf],
        ["Requests", (reason) => number(counts[reason] ?? 0), "num"],
      ]}
    />
  );
}

const showFailed: Handler = async (c) => {
  const key = await findKey(c);
  return showPage(
    c,
    {
      title: "Refused and failed requests",
      lead: (
        <>
          The last {listedMax} of{" "}
          <a href={`/keys/${key.id}`}>
            <bdi>{key.description}</bdi>
          </a>, kept for {daysListed} days. Nothing of their content is stored.
        </>
      ),
    },
    <Table
      caption="Refused and failed requests, newest first"
      rows={await readFailed(c.var.deps.redis, key)}
      empty={{
        title: "No requests",
        lead: `None were refused or failed in the last ${daysListed} days.`,
      }}
      columns={[
        [
          "Request",
          ({ timeMs, requestId }) => (
            <Noted note={<code>{requestId}</code>}>
              <Time ms={timeMs} as="minute" />
            </Noted>
          ),
        ],
        [
          "Why",
          ({ reason, param }) => (
            <Noted note={param && `Field: ${param}`}>{wordsOf(reason)}</Noted>
          ),
        ],
        [
          "Status",
          ({ status, code }) => (
            <Noted note={code && <code>{code}</code>}>{status}</Noted>
          ),
        ],
        ["Model", ({ model }) => model ?? "–"],
      ]}
    />,
  );
};

export const failureRoutes = { "/keys/:id/requests": { GET: showFailed } };

import {
  FAILURE_REASONS,
  type FailureReason,
} from "@gateway/shared/keys/failed_requests";
import { FAILED_REQUESTS } from "@gateway/shared/limits";
import { type Counts, readFailed } from "../../domain/keys/usage.ts";
import { findKey, type Handler } from "../context.ts";
import { showPage } from "../layout.tsx";
import { Noted, Table } from "../lists.tsx";
import { labelOf, number, Time } from "../texts.tsx";

/** Requests that were refused or failed: why, and the last ones of a key. */

const { listedMax, daysListed } = FAILED_REQUESTS;

const LIMITED = "rate limited";
const limited = (limit: string) => [LIMITED, `Limit of ${limit}`] as const;
const ALL = "all your keys together";
/** Each reason: behind a number, and as a sentence. */
const WORDS: Readonly<
  Record<FailureReason, readonly [short: string, text: string]>
> = {
  requests_per_minute: limited("the key: requests per minute"),
  tokens_per_minute: limited("the key: tokens per minute"),
  tokens_per_day: limited("the key: tokens per day"),
  concurrency: limited("the key: requests at the same time"),
  "requests_per_minute.owner": limited(`${ALL}: requests per minute`),
  "tokens_per_minute.owner": limited(`${ALL}: tokens per minute`),
  "tokens_per_day.owner": limited(`${ALL}: tokens per day`),
  "concurrency.owner": limited(`${ALL}: requests at the same time`),
  model_server_limit: limited("the model server"),
  request_bodies: [LIMITED, "Too many invalid or very large requests at once"],
  unknown_model: ["unknown model", "The model does not exist"],
  model_forbidden: ["not allowed", "The key may not use the model"],
  endpoint_forbidden: ["not allowed", "The key may not use the endpoint"],
  key_disabled: ["key disabled", "The key was disabled"],
  key_expired: ["key expired", "The key had expired"],
  invalid_request: ["invalid", "The request was invalid"],
  server: ["server error", "The service or the model server failed"],
  cut: ["cut off", "The answer had begun, and was cut off by an error"],
};

const hasWords = (reason: string): reason is FailureReason =>
  Object.hasOwn(WORDS, reason);

/** `18 rate limited, 20 unknown model`; empty if nothing was refused or failed. */
function summaryOf(counts: Counts): string {
  const sums = new Map<string, number>();
  for (const reason of FAILURE_REASONS) {
    const [short] = WORDS[reason];
    sums.set(short, (sums.get(short) ?? 0) + (counts[reason] ?? 0));
  }
  return [...sums].filter(([, count]) => count > 0)
    .map(([short, count]) => `${number(count)} ${short}`).join(", ");
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
          <div>
            <strong>Refused or failed</strong>
            <p class="help">{summaryOf(counts)}</p>
          </div>
          {listed
            ? <a class="button small" href={listed}>Show requests</a>
            : <span class="help">Each key's page lists the last ones</span>}
        </div>
      }
      rows={reasons}
      columns={[
        ["Reason", (reason) => WORDS[reason][1]],
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
        lead: `None was refused or failed in the last ${daysListed} days.`,
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
        ["Why", ({ reason, param }) => (
          <Noted note={param && `Field: ${param}`}>
            {hasWords(reason) ? WORDS[reason][1] : labelOf(reason)}
          </Noted>
        )],
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

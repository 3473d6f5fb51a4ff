import {
  FAILURE_REASONS,
  type FailureReason,
  LIMIT_REASONS,
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
/** A reason behind a number, and as a sentence. */
type Words = readonly [short: string, text: string];

const limited = (limit: string): Words => [LIMITED, `Limit of ${limit}`];
const AT_THE_SAME_TIME: Readonly<Record<string, string>> = {
  concurrency: "requests at the same time",
  video_jobs: "videos at the same time",
};

type LimitReason = typeof LIMIT_REASONS[number];
const OTHERS: Readonly<
  Record<Exclude<FailureReason, LimitReason | `${LimitReason}.owner`>, Words>
> = {
  model_server_limit: limited("the model server"),
  request_bodies: [LIMITED, "Too many invalid or very large requests at once"],
  unknown_model: ["unknown model", "The model does not exist"],
  model_forbidden: ["not allowed", "The key may not use the model"],
  endpoint_forbidden: ["not allowed", "The key may not use the endpoint"],
  key_disabled: ["key disabled", "The key was disabled"],
  key_expired: ["key expired", "The key had expired"],
  invalid_request: ["invalid", "The request was invalid"],
  server: ["server error", "The service or the model server failed"],
  cut: ["cut off", "An error cut the answer off after it had started"],
};

const WORDS: ReadonlyMap<string, Words> = new Map([
  ...LIMIT_REASONS.flatMap((limit): [string, Words][] => {
    const name = AT_THE_SAME_TIME[limit] ?? labelOf(limit).toLowerCase();
    return [
      [limit, limited(`the key: ${name}`)],
      [`${limit}.owner`, limited(`all your keys together: ${name}`)],
    ];
  }),
  ...Object.entries(OTHERS),
]);
/** Also of a reason of a later version. */
const wordsOf = (reason: string): Words =>
  WORDS.get(reason) ?? ["other", labelOf(reason)];

/** `18 rate limited, 20 unknown model`; empty if nothing was refused or failed. */
function summaryOf(counts: Counts): string {
  const sums = new Map<string, number>();
  for (const reason of FAILURE_REASONS) {
    const [short] = wordsOf(reason);
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
            : <span class="help">Each key's page lists its own</span>}
        </div>
      }
      rows={reasons}
      columns={[
        ["Reason", (reason) => wordsOf(reason)[1]],
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
            {wordsOf(reason)[1]}
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

/** The request log: which requests were refused, failed or slow, and why. */

import { isAccountId } from "@gateway/shared/keys/key";
import { ERROR_KINDS } from "@gateway/shared/openai/error";
import { FAILURE_REASONS } from "@gateway/shared/keys/limiter_state";
import {
  KEY_DELETED,
  REQUEST_OUTCOMES,
} from "@gateway/shared/keys/request_row";
import { shortTime } from "../../../domain/models/model_views.ts";
import { PAGE_ROWS } from "../../../domain/keys/key_page.ts";
import { parseEmail } from "../../../domain/owners/email.ts";
import { requestCsv } from "../../../domain/requests/request_csv.ts";
import type {
  FoundRequest,
  RequestPage,
} from "../../../domain/requests/request_log.ts";
import {
  parseRequestQuery,
  REQUEST_FIELDS,
  type RequestTexts,
  TIME_FORMS,
} from "../../../domain/requests/request_query.ts";
import type { RowFilter } from "../../../domain/requests/request_table.ts";
import {
  answerCsv,
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { operatorPath, ownScopeOf } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import {
  address,
  Banner,
  Field,
  Noted,
  Pager,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import type { Column } from "../../view/sorting.tsx";
import { Email, ErrorCode, keyName, labelOf, Time } from "../../view/texts.tsx";
import {
  ALL_REQUESTS,
  OWN_REQUESTS,
  OWN_RUNNING,
  PEOPLE_VIEWS,
} from "./addresses.ts";
import { keysOf, namesOf } from "./row_names.ts";
import { OUTCOMES, whatHappened } from "./what_happened.tsx";

/** The fields of the form: those of a search, and for operators the account. */
interface Texts extends RequestTexts {
  account: string;
}

/** A search, by somebody who may see what it finds. */
interface Search {
  /** Null for all accounts. */
  ownerId: string | null;
  filter: RowFilter;
}

/** Whether the page is the one for operators. */
const isForAll = (c: ConsoleContext): boolean =>
  c.req.path.startsWith(ALL_REQUESTS);

/** What the address asks for. Other members of it are ignored, as on all pages. */
function textsOf(c: ConsoleContext): Texts {
  const text = (name: string) => (c.req.query(name) ?? "").trim();
  return {
    from: text("from"),
    until: text("until"),
    key: text("key"),
    model: text("model"),
    code: text("code"),
    request: text("request"),
    outcome: text("outcome"),
    account: isForAll(c) ? text("account") : "",
  };
}

/** Reads a search. Returns a text that names the mistake if it cannot be read. */
async function searchOf(
  c: ConsoleContext,
  texts: Texts,
): Promise<Search | string> {
  const { now } = c.var.deps;
  const filter = parseRequestQuery(texts, now());
  if ("message" in filter) {
    return `${FIELD_LABELS[filter.field]}: ${filter.message}.`;
  }
  if (!isForAll(c)) {
    const { ownerId, createdBy } = ownScopeOf(c);
    if (createdBy === undefined) return { ownerId, filter };
    const keyIds = await keyIdsOf(c, ownerId, {
      createdBy,
      among: filter.keyIds,
    });
    const isOther = filter.keyIds !== null && keyIds.length === 0;
    return isOther ? OF_OWN_KEY : { ownerId, filter: { ...filter, keyIds } };
  }
  const ownerId = await accountOf(c, texts.account);
  return ownerId === undefined
    ? "Account: There is no account with this address or id."
    : { ownerId, filter };
}

/** A member of a project sees no requests with keys of others. */
async function keyIdsOf(
  c: ConsoleContext,
  ownerId: string,
  { createdBy, among }: {
    createdBy: string;
    /** Null: all keys that the log names. */
    among: readonly string[] | null;
  },
): Promise<string[]> {
  const ids = among ?? [...await c.var.deps.requests.keyIds(ownerId)];
  const keys = await keysOf(c, ids.map((keyId) => ({ keyId, ownerId })));
  return ids.filter((id) => keys.get(id)?.createdBy === createdBy);
}

/** The refusal of a search for a key of another member. */
const OF_OWN_KEY = "Key: Name the id of a key that you created.";

/** Returns the id of an account; null for all accounts, undefined if there is none. */
async function accountOf(
  c: ConsoleContext,
  text: string,
): Promise<string | null | undefined> {
  if (text === "") return null;
  // Without a look-up: the log of an account outlives it.
  if (isAccountId(text)) return text;
  const email = parseEmail(text);
  const { owners } = c.var.deps;
  return (email && await owners.find(email)) ?? undefined;
}

const FIELD_LABELS: Readonly<Record<typeof REQUEST_FIELDS[number], string>> = {
  from: "From",
  until: "Until",
  key: "Key",
  model: "Model",
  code: "Code or reason",
  request: "Request",
  outcome: "What happened",
};

const showRequests: Handler = async (c) => {
  const texts = textsOf(c);
  const search = await searchOf(c, texts);
  const after = c.req.query("after") ?? "";
  const { requests } = c.var.deps;
  const isMistake = typeof search === "string";
  const page: RequestPage = isMistake
    ? { rows: [], next: null, missingBeforeMs: null }
    : await requests.search({
      ...search.filter,
      ownerId: search.ownerId,
      after,
      rows: PAGE_ROWS,
    });
  const to = (after: string) => address(c.req.path, { ...texts, after });
  const isAll = isForAll(c);
  return (
    <Page
      c={c}
      title={isAll ? "All requests" : "Requests"}
      lead="Requests that were refused, that failed or that were slow, newest first. Prompts and answers are not stored."
      error={isMistake ? search : null}
      actions={
        <div class="row">
          {!isAll && (
            <a class="button" href={ownScopeOf(c).root + OWN_RUNNING}>
              Running now
            </a>
          )}
          <a class="button" href={address(`${c.req.path}.csv`, { ...texts })}>
            Download CSV
          </a>
        </div>
      }
    >
      {isAll && (
        <Tabs
          label="View"
          tabs={PEOPLE_VIEWS}
          current={ALL_REQUESTS}
          to={(view) => view}
        />
      )}
      <SearchForm action={c.req.path} texts={texts} isAll={isAll} />
      {page.missingBeforeMs !== null && (
        <Banner look="warn">
          There are more requests than this console holds: those before{" "}
          <Time ms={page.missingBeforeMs} as="minute" /> may be missing.
        </Banner>
      )}
      {!isMistake && (
        <Table
          caption="Requests, newest first"
          rows={page.rows}
          empty={{
            title: "No requests",
            lead:
              "None of those that are kept was refused, failed or was slow and fits the search.",
          }}
          columns={await columnsFor(c, page.rows)}
        />
      )}
      <Pager after={after} next={page.next} to={to} />
    </Page>
  );
};

const exportRequests: Handler = async (c) => {
  const search = await searchOf(c, textsOf(c));
  if (typeof search === "string") {
    throw new Refused(400, search.replace(/\.$/, ""));
  }
  const { requests } = c.var.deps;
  const query = { ...search.filter, ownerId: search.ownerId };
  return answerCsv(c, "requests.csv", requestCsv(requests, query));
};

/** The routes of the request log of an account. */
export const requestRoutes = (root: string): Routes => ({
  [root + OWN_REQUESTS]: { GET: showRequests },
  [`${root + OWN_REQUESTS}.csv`]: { GET: exportRequests },
});

/** The same of all accounts, for operators. */
export const operatorRequestRoutes: Routes = {
  [ALL_REQUESTS]: { GET: showRequests },
  [`${ALL_REQUESTS}.csv`]: { GET: exportRequests },
};

/** Codes and reasons, as the form offers them. */
const CODES = new Set([
  ...FAILURE_REASONS,
  KEY_DELETED,
  ...Object.keys(ERROR_KINDS),
]);

const SearchForm = ({ action, texts, isAll }: {
  action: string;
  texts: Texts;
  isAll: boolean;
}) => (
  <form class="card" method="get" action={action} role="search">
    <div class="pair">
      <Field
        id="from"
        label="From"
        value={texts.from}
        placeholder="7d"
        help={`${TIME_FORMS}.`}
      />
      <Field id="until" label="Until" value={texts.until} placeholder="Now" />
      <Field
        id="outcome"
        label={FIELD_LABELS.outcome}
        value={texts.outcome}
        options={[
          ["", "Anything"],
          ...REQUEST_OUTCOMES.map((name) =>
            [name, OUTCOMES[name] ?? name] as const
          ),
        ]}
      />
      <Field
        id="code"
        label={FIELD_LABELS.code}
        value={texts.code}
        list="codes"
        placeholder="rate_limit_exceeded"
      />
      {isAll && (
        <Field
          id="account"
          label="Account"
          value={texts.account}
          placeholder="ada@example.org"
        />
      )}
      <Field
        id="key"
        label={FIELD_LABELS.key}
        value={texts.key}
        placeholder="key_…"
      />
      <Field id="model" label={FIELD_LABELS.model} value={texts.model} />
      <Field
        id="request"
        label={FIELD_LABELS.request}
        value={texts.request}
        placeholder="req_…"
      />
    </div>
    <datalist id="codes">
      {[...CODES].sort().map((code) => <option key={code} value={code} />)}
    </datalist>
    <div class="row">
      <button class="primary" type="submit">Find</button>
      <a class="button" href={action}>Clear</a>
    </div>
  </form>
);

/** The columns for these rows, with the names of their keys and accounts. */
async function columnsFor(
  c: ConsoleContext,
  rows: readonly FoundRequest[],
): Promise<readonly Column<FoundRequest>[]> {
  const isAll = isForAll(c);
  const keys = await keysOf(c, rows);
  const names = isAll ? await namesOf(c, rows) : new Map<string, string>();
  return [
    [
      "Request",
      ({ timeMs, requestId }) => (
        <Noted note={<code>{requestId}</code>}>
          <Time ms={timeMs} as="minute" />
        </Noted>
      ),
    ],
    [
      "What happened",
      (row) => whatHappened(row, c.var.deps.catalog.prices.currency),
    ],
    [
      "Status",
      ({ status, code }) => (
        <Noted note={code && <ErrorCode>{code}</ErrorCode>}>{status}</Noted>
      ),
    ],
    ["Key", ({ keyId, ownerId }) => {
      const key = keys.get(keyId);
      const base = isAll ? `/people/${ownerId}/keys` : ownScopeOf(c).base;
      return key === undefined
        ? (
          <Noted note="Deleted, or of Try it">
            <code>{keyId}</code>
          </Noted>
        )
        : keyName(key, base);
    }],
    ...(isAll ? ["Account"] : []).map((label): Column<FoundRequest> => [
      label,
      ({ ownerId }) => (
        <a href={operatorPath(ownerId)}>
          <Email>{names.get(ownerId) || ownerId}</Email>
        </a>
      ),
    ]),
    [
      "Model",
      ({ model, endpoint }) => (
        <Noted note={endpoint && labelOf(endpoint)}>
          {model === "" ? "–" : <bdi>{model}</bdi>}
        </Noted>
      ),
    ],
    ["Time taken", ({ durationMs, firstByteMs }) => (
      <Noted
        note={firstByteMs !== null && `First byte ${shortTime(firstByteMs)}`}
      >
        {shortTime(durationMs)}
      </Noted>
    )],
    [
      "Server",
      ({ backend, attempts, clientAddress }) => (
        <Noted note={`From ${clientAddress}`}>
          {backend || "–"}
          {attempts > 1 && `, attempt ${attempts}`}
        </Noted>
      ),
    ],
  ];
}

/** The requests that run now, and stopping one of them. */
import type { KeyRecord } from "@gateway/shared/keys/record";
import { publicRequestId } from "@gateway/shared/process/ids";
import { z } from "zod";
import { ageText } from "../../../domain/models/model_views.ts";
import type {
  RunningList,
  RunningView,
} from "../../../domain/running/running_requests.ts";
import { stopEntry } from "../../../domain/running/stop_entry.ts";
import {
  actorOf,
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm } from "../../request/forms.ts";
import {
  noteForOperator,
  operatorPath,
  ownScopeOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import {
  address,
  Banner,
  Noted,
  PostForm,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import type { Column } from "../../view/sorting.tsx";
import { Email, keyName, labelOf, number } from "../../view/texts.tsx";
import { ReasonField } from "../keys/key_form.tsx";
import {
  ALL_RUNNING,
  OWN_REQUESTS,
  OWN_RUNNING,
  PEOPLE_VIEWS,
} from "../usage/addresses.ts";
import { keysOf, namesOf } from "../usage/row_names.ts";

/**
 * The most rows of a page: a page of thousands helps nobody. The newest are left out.
 */
const ROWS_MAX = 200;
const REQUEST_ID = /^req_([0-9a-f]{32})$/;

const UNREACHABLE =
  "NATS does not answer, so nobody knows what runs now. Try again in a moment";
const HAS_ENDED =
  "This request does not run any more: it has ended, or its edge did not answer";
const NOT_STOPPED =
  "No edge has confirmed it. Try again, or disable the key together with its running requests";

/** Whether the page is the one for operators. */
const isForAll = (c: ConsoleContext): boolean =>
  c.req.path.startsWith(ALL_RUNNING);

/** Returns the address of the list that the page belongs to. */
const listOf = (c: ConsoleContext): string =>
  isForAll(c) ? ALL_RUNNING : ownScopeOf(c).root + OWN_RUNNING;

/** Returns the account whose requests the page shows; null for all accounts. */
const accountOf = (c: ConsoleContext): string | null =>
  isForAll(c) ? null : ownScopeOf(c).ownerId;

/** The running requests that the signed-in person may see. */
interface Seen {
  list: RunningList;
  requests: readonly RunningView[];
  /** The keys of the requests that still exist, by id. */
  keys: ReadonlyMap<string, KeyRecord>;
}

/** Finds the running requests. Throws {@link Refused} while the bus is down. */
async function look(c: ConsoleContext): Promise<Seen> {
  const list = await c.var.deps.running.list(accountOf(c));
  if (list === null) throw new Refused(503, UNREACHABLE, { back: listOf(c) });
  const keys = await keysOf(
    c,
    list.requests.map(({ keyId, account }) => ({ keyId, ownerId: account })),
  );
  // A member of a project sees no requests with keys of others.
  const createdBy = isForAll(c) ? undefined : ownScopeOf(c).createdBy;
  const requests = list.requests.filter(({ keyId }) =>
    createdBy === undefined || keys.get(keyId)?.createdBy === createdBy
  );
  return { list, requests, keys };
}

const showRunning: Handler = async (c) => {
  const running = await look(c);
  const { list, requests } = running;
  const isAll = isForAll(c);
  const shown = requests.slice(0, ROWS_MAX);
  const hidden = requests.length - shown.length + list.more;
  return (
    <Page
      c={c}
      title={isAll ? "Running requests of all accounts" : "Running requests"}
      lead="What runs at this moment, oldest first. A request appears here once it is admitted, and leaves when it ends."
      actions={
        <div class="row">
          {!isAll && (
            <a class="button" href={ownScopeOf(c).root + OWN_REQUESTS}>
              Refused, failed or slow
            </a>
          )}
          <a class="button" href={c.req.path}>Refresh</a>
        </div>
      }
    >
      {isAll && (
        <Tabs
          label="View"
          tabs={PEOPLE_VIEWS}
          current={ALL_RUNNING}
          to={(view) => view}
        />
      )}
      <Silence list={list} />
      {hidden > 0 && (
        <Banner look="warn">
          {number(hidden)} more run: these are the oldest.
        </Banner>
      )}
      <Table
        caption="Running requests, oldest first"
        rows={shown}
        empty={{
          title: "Nothing runs now",
          lead: isAll
            ? "No request of any account is waiting, running or streaming."
            : "No request with one of these keys is waiting, running or streaming.",
        }}
        columns={await columnsFor(c, { ...running, requests: shown })}
      />
    </Page>
  );
};

/** Says whose requests may be missing. */
function Silence({ list: { edges, silentEdges } }: { list: RunningList }) {
  if (edges === 0) {
    return (
      <Banner look="warn">
        No edge has answered: is one running, and may it answer on NATS?
      </Banner>
    );
  }
  return silentEdges === 0 ? null : (
    <Banner look="warn">
      {silentEdges === 1 ? "One edge has" : `${number(silentEdges)} edges have`}
      {" "}
      not answered in time: requests there are missing.
    </Banner>
  );
}

const STATES: Readonly<
  Record<RunningView["state"], readonly [label: string, look: string]>
> = {
  waiting: ["Waiting", "warn"],
  running: ["Running", ""],
  streaming: ["Streaming", "good"],
};

async function columnsFor(
  c: ConsoleContext,
  { requests, keys }: Omit<Seen, "list">,
): Promise<readonly Column<RunningView>[]> {
  const isAll = isForAll(c);
  const names = isAll
    ? await namesOf(c, requests.map(({ account }) => ({ ownerId: account })))
    : new Map<string, string>();
  const to = (account: string) =>
    isAll ? `/people/${account}/keys` : ownScopeOf(c).base;
  return [
    [
      "Key",
      ({ keyId, account }) => nameOf(keys.get(keyId), keyId, to(account)),
    ],
    ...(isAll ? ["Account"] : []).map((label): Column<RunningView> => [
      label,
      ({ account }) => (
        <a href={operatorPath(account)}>
          <Email>{names.get(account) || account}</Email>
        </a>
      ),
    ]),
    [
      "Model",
      ({ model, kind }) => (
        <Noted note={labelOf(kind)}>
          <bdi>{model}</bdi>
        </Noted>
      ),
    ],
    [
      "State",
      ({ state }) => {
        const [label, look] = STATES[state];
        return <span class={`badge ${look}`}>{label}</span>;
      },
    ],
    [
      "Server",
      ({ backend, workerId }) => (
        <Noted note={workerId && <>Worker {workerId}</>}>
          {backend || "–"}
        </Noted>
      ),
    ],
    [
      "For",
      ({ ageMs, requestId }) => (
        <Noted note={<code>{publicRequestId(requestId)}</code>}>
          {ageText(ageMs)}
        </Noted>
      ),
    ],
    ["Tokens so far", ({ tokens }) => number(tokens), "num"],
    [
      "Change",
      ({ requestId }) => (
        <a
          class="button small bad"
          href={address(`${listOf(c)}/stop`, {
            request: publicRequestId(requestId),
          })}
        >
          Stop <span class="hidden">{publicRequestId(requestId)}</span>
        </a>
      ),
    ],
  ];
}

const nameOf = (key: KeyRecord | undefined, keyId: string, base: string) =>
  key === undefined
    ? (
      <Noted note="Deleted, or of Try it">
        <code>{keyId}</code>
      </Noted>
    )
    : keyName(key, base);

/** A request that runs, and its key if that still exists. */
interface RequestDetails {
  request: RunningView;
  key: KeyRecord | undefined;
  /** The account of somebody else, with its name; null for one's own, or a project. */
  other: { ownerId: string; name: string } | null;
}

/** The request of this id, if it runs and may be seen. Throws {@link Refused}. */
async function find(c: ConsoleContext, text: string): Promise<RequestDetails> {
  const [, requestId] = REQUEST_ID.exec(text) ?? [];
  const { requests, keys } = await look(c);
  const request = requests.find((each) => each.requestId === requestId);
  if (request === undefined) {
    throw new Refused(404, HAS_ENDED, { back: listOf(c) });
  }
  const { account: ownerId, keyId } = request;
  const isOther = isForAll(c) && ownerId !== c.var.signedIn.session.ownerId;
  const name = isOther ? await c.var.deps.people.name(ownerId) : null;
  const other = isOther ? { ownerId, name: name ?? ownerId } : null;
  return { request, key: keys.get(keyId), other };
}

const askStop: Handler = async (c) => {
  const id = c.req.query("request") ?? "";
  const { request, key, other } = await find(c, id);
  const { keyId, model, ageMs, tokens } = request;
  return (
    <Page
      c={c}
      title="Stop this request?"
      lead="Its caller gets an error within a second, and what it has made so far is charged. The key still works."
      isCard
    >
      <p>
        {key === undefined ? <code>{keyId}</code> : keyName(key)},{" "}
        <bdi>{model}</bdi>, for {ageText(ageMs)}, {number(tokens)} tokens so far
      </p>
      <PostForm
        action={`${listOf(c)}/stop`}
        hidden={{ request: id }}
        submit="Stop request"
        look="primary bad"
        cancel={listOf(c)}
      >
        {other !== null && <ReasonField name={other.name} />}
      </PostForm>
    </Page>
  );
};

const STOP_FORM = z.strictObject({
  request: z.string().regex(REQUEST_ID),
  reason: FORM.shape.reason.optional(),
});

const stop: Handler = async (c) => {
  const { request: id, reason } = parseForm(c, STOP_FORM);
  const { request, key, other } = await find(c, id);
  if (other !== null && reason === undefined) {
    throw new Refused(400, "Say why you stop it: its owner sees the reason", {
      back: address(`${listOf(c)}/stop`, { request: id }),
    });
  }
  const result = await c.var.deps.running.stop(request);
  if (result !== "stopped") {
    const message = result === "ended" ? HAS_ENDED : NOT_STOPPED;
    const status = result === "ended" ? 404 : 503;
    throw new Refused(status, message, { back: listOf(c) });
  }
  const entry = stopEntry(request, key, reason ?? "");
  await c.var.deps.audit.add(request.account, { ...actorOf(c), ...entry });
  const { action, keyId, hint, description, detail } = entry;
  await noteForOperator(c, { ...ownScopeOf(c), other }, {
    action,
    key: { id: keyId, hint, description },
    reason: detail,
  });
  return c.redirect(`${listOf(c)}?done=request_stopped`, 303);
};

const routesAt = (path: string): Routes => ({
  [path]: { GET: showRunning },
  [`${path}/stop`]: { GET: askStop, POST: stop },
});

/** The routes of the running requests of an account. */
export const runningRoutes = (root: string): Routes =>
  routesAt(root + OWN_RUNNING);

/** The same of all accounts, for operators. */
export const operatorRunningRoutes: Routes = routesAt(ALL_RUNNING);

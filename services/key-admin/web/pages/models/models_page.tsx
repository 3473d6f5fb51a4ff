/**
 * The page "Models", for operators: the models, their servers, and the state of each.
 */

import { scopeOf } from "@gateway/shared/models/kinds";
import {
  type ModelView,
  modelViews,
  search as searchModels,
  type ServerState,
  type ServerView,
  shortRate,
  shortTime,
  stateOf,
  waitingText,
} from "../../../domain/models/model_views.ts";
import type { ConsoleContext, Handler, Routes } from "../../context.ts";
import { Page } from "../../view/layout.tsx";
import {
  allOf,
  isSort,
  sortedPage,
  type SortValues,
} from "../../../domain/store/sorted.ts";
import {
  address,
  Empty,
  Noted,
  Search,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import { type Column, SortChoice } from "../../view/sorting.tsx";
import { namesText, number, permissionOf, Time } from "../../view/texts.tsx";
import { cleanSearch } from "../keys/keys_list.tsx";
import {
  changeAddress,
  modelChangeRoutes,
  OverrideTable,
} from "./model_changes.tsx";

/** Models of one page; a search finds the others. */
const MODELS_MAX = 100;

const LEAD =
  "How the model servers do, as the workers see it. A closed circuit breaker lets requests pass; an open one keeps them away from a server that fails; when it is half-open, the next request decides. Figures are of the last hour.";

const showModels: Handler = async (c) => {
  const { catalog, workers, overrides, now } = c.var.deps;
  const words = cleanSearch(c.req.query("search") ?? "");
  const all = modelViews(catalog, workers);
  const text = c.req.query("sort") ?? "";
  const sort = isSort(text, SERVER_SORTS) ? text : "";
  const found = searchModels(all, words);
  const page = found.slice(0, MODELS_MAX);
  const changes = await overrides.list();
  const disabled = new Set(
    changes.filter(({ what }) => what === "disable").map(({ model }) => model),
  );
  return (
    <Page
      c={c}
      title="Models"
      lead={LEAD}
      actions={<a class="button" href={c.req.path}>Refresh</a>}
    >
      <div class="row between">
        <span>{totalsText(all, workers.follower.workers)}</span>
        <Search
          action="/models"
          search={words}
          placeholder="Part of a model or server"
        />
      </div>
      <OverrideTable
        overrides={changes}
        views={all}
        nowMs={now()}
      />
      <Tabs
        label="View"
        current={sort === "" ? "" : "status"}
        tabs={[["", "By model"], ["status", "All servers, sorted"]]}
        to={(sort) => address("/models", { search: words, sort })}
      />
      {page.length === 0 && (
        <Empty title="Nothing found" lead="Try fewer or shorter words." />
      )}
      {sort !== "" && page.length > 0 && (
        <ServerTable
          models={page}
          sort={sort}
          search={words}
          nowMs={now()}
        />
      )}
      {sort === "" && page.map((model) => (
        <ModelTable
          key={model.id}
          c={c}
          model={model}
          isDisabled={disabled.has(model.id)}
        />
      ))}
      {found.length > page.length && (
        <p class="help">
          {number(found.length - page.length)}{" "}
          more: search for part of their names.
        </p>
      )}
    </Page>
  );
};

function totalsText(models: readonly ModelView[], workers: number): string {
  const servers = models.flatMap(({ servers }) => servers);
  const countText = (count: number, name: string) =>
    `${number(count)} ${name}${count === 1 ? "" : "s"}`;
  return [
    countText(models.length, "model"),
    countText(servers.length, "server"),
    countText(workers, "worker"),
  ].join(", ");
}

function ModelTable({ c, model, isDisabled }: {
  c: ConsoleContext;
  model: ModelView;
  isDisabled: boolean;
}) {
  const nowMs = c.var.deps.now();
  return (
    <Table
      caption={`Servers of ${model.id}`}
      title={
        <Noted note={usersOf(model)}>
          <h2>
            <bdi>{namesText(model)}</bdi>{" "}
            {isDisabled && <span class="badge warn">Disabled</span>}{" "}
            {model.waiting && (
              <span class="badge warn">{waitingText(model.waiting)}</span>
            )} <a class="button small" href={changeAddress(model.id)}>Change</a>
          </h2>
        </Noted>
      }
      rows={model.servers}
      columns={columns(nowMs)}
    />
  );
}

/** The orders of the list of all servers. */
const SERVER_SORTS: SortValues<ServerView> = {
  name: ({ model }) => model,
  server: ({ backend }) => backend,
  status: (server) => STATES.indexOf(stateOf(server).word),
  running: ({ inFlight }) => inFlight,
  requests: ({ requests }) => requests,
  failures: ({ failures }) => failures,
  first_token: ({ firstTokenMs }) => firstTokenMs?.p95 ?? null,
  rate: ({ tokensPerSecond }) => tokensPerSecond?.p50 ?? null,
  error: ({ error }) => error && -error.ageMs,
};
/** States by how much they need somebody, most first. */
const STATES: readonly string[] = [
  "Open",
  "Half-open",
  "Limited",
  "Draining",
  "Drained",
  "Not reported",
  "Closed",
];

/** The servers of all models in one list. */
function ServerTable({ models, sort, search, nowMs }: {
  models: readonly ModelView[];
  sort: string;
  search: string;
  nowMs: number;
}) {
  const servers = models.flatMap(({ servers }) => servers);
  const permissions = new Map(
    models.map(({ id, kind }) => [id, kind && permissionOf(scopeOf(kind))]),
  );
  const all: Column<ServerView>[] = [
    [
      "Model",
      ({ model }) => (
        <Noted note={permissions.get(model)}>
          <a href={changeAddress(model)}>{model}</a>
        </Noted>
      ),
      undefined,
      "name",
    ],
    ...columns(nowMs),
  ];
  const query = { sort, after: "", rows: servers.length };
  return (
    <>
      <SortChoice
        action="/models"
        columns={all}
        current={sort}
        hidden={{ search }}
      />
      <Table
        caption="Servers of all models, sorted"
        rows={sortedPage(allOf(servers), SERVER_SORTS, query).rows}
        columns={all}
        sorting={{
          current: sort,
          to: (sort) => address("/models", { search, sort }),
        }}
      />
    </>
  );
}

/** Says who may use a model, in the words of the pages of keys. */
function usersOf({ kind }: ModelView): string {
  return kind === null
    ? "Only workers have it: their list of models is another one than the console's."
    : `For keys that may use all models or this one, with the permission ${
      permissionOf(scopeOf(kind))
    }.`;
}

const LOOKS: Readonly<Record<ServerState["word"], string>> = {
  "Not reported": "",
  Draining: "warn",
  Drained: "warn",
  Open: "bad",
  "Half-open": "warn",
  Limited: "warn",
  Closed: "good",
};

/** On one line. */
const PERCENTILES = "p50\u00a0/\u00a0p95";

const columns = (nowMs: number): Column<ServerView>[] => [
  [
    "Server",
    (server) => (
      <Noted note={placeOf(server)}>
        <a href={changeAddress(server.model, server.backend)}>
          <bdi>{server.backend}</bdi>
        </a>
      </Noted>
    ),
    undefined,
    "server",
  ],
  [
    "State",
    (server) => {
      const { word, note } = stateOf(server);
      return (
        <Noted note={note}>
          <span class={`badge ${LOOKS[word]}`}>{word}</span>
        </Noted>
      );
    },
    undefined,
    "status",
  ],
  ["In flight", ({ inFlight }) => number(inFlight), "num", "running"],
  ["Requests", ({ requests }) => number(requests), "num", "requests"],
  ["Failures", failuresText, "num", "failures"],
  [
    `First token, ${PERCENTILES}`,
    ({ firstTokenMs }) => percentiles(firstTokenMs, shortTime),
    "num",
    "first_token",
  ],
  [
    `Tokens/s, ${PERCENTILES}`,
    ({ tokensPerSecond }) => percentiles(tokensPerSecond, shortRate),
    "num",
    "rate",
  ],
  [
    "Last error",
    ({ error }) =>
      error === null
        ? <span class="faint">None</span>
        : (
          <Noted note={<Time ms={nowMs - error.ageMs} as="relative" />}>
            <bdi>{error.text}</bdi>
          </Noted>
        ),
    "prose",
    "error",
  ],
];

/** Says where a server is, and its share of the requests. */
function placeOf({ address, preference, weight }: ServerView) {
  return (
    <>
      {address ?? "Not in the console's list"}
      <br />
      Preference&nbsp;{number(preference)}, weight&nbsp;{number(weight)}
    </>
  );
}

const SHARE = new Intl.NumberFormat("en-US", {
  style: "percent",
  maximumSignificantDigits: 2,
});

const failuresText = ({ failures, requests }: ServerView): string =>
  failures === 0
    ? "0"
    : `${number(failures)} (${SHARE.format(failures / requests)})`;

/** The median, and what one in twenty exceeds. */
function percentiles(
  found: ServerView["firstTokenMs"],
  textOf: (value: number) => string,
) {
  if (found === null) return "–";
  return `${textOf(found.p50)} / ${textOf(found.p95)}`;
}

/** The page "Models", and the forms on it. */
export const modelRoutes: Routes = {
  "/models": { GET: showModels },
  ...modelChangeRoutes,
};

/** The list of keys of an account. */

import { isKeyId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { PriceTable } from "@gateway/shared/models/price_list";
import type { Child } from "hono/jsx";
import {
  KEY_FILTERS,
  KEY_SORTS,
  type KeyFilter,
  type KeyRow,
  PAGE_ROWS,
} from "../../../domain/keys/key_page.ts";
import { isSort } from "../../../domain/store/sorted.ts";
import type { RowPage } from "../../../domain/store/redis.ts";
import type {
  ConsoleContext,
  ConsoleDeps,
  Handler,
  Routes,
} from "../../context.ts";
import {
  type KeyScope,
  OWN_KEYS,
  ownScopeOf,
  whoseOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import {
  address,
  Empty,
  Pager,
  Search,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import { type Column, PartialNote, SortChoice } from "../../view/sorting.tsx";
import {
  Email,
  keyName,
  labelOf,
  lastUseOf,
  Moment,
  money,
  number,
  rotationOf,
  statusOf,
  Time,
} from "../../view/texts.tsx";
import { limitsCard } from "../usage/limits_view.tsx";
import { switchOf } from "./key_changes.tsx";
import { curlFor } from "./key_created.tsx";
import { SelectBox, SelectedForm } from "./keys_selected.tsx";

/** The order of a list of keys unless its address names another one. */
export const NEWEST = "-created";

/** The query in the address of the list; members that it leaves out are empty. */
type ListQuery = {
  /** One of the filters; empty: all keys. */
  filter: string;
  /** What a key is searched by. */
  search: string;
  /** The member of the project who made the keys. */
  by: string;
  /** One of the orders; empty: the newest first. */
  sort: string;
  /** The cursor of the page before. */
  after: string;
};

function queryOf(c: ConsoleContext): ListQuery {
  const filter = filterOf(c.req.query("filter"));
  const sort = c.req.query("sort") ?? "";
  return {
    filter: filter === "all" ? "" : filter,
    search: cleanSearch(c.req.query("search") ?? ""),
    by: c.req.query("by") ?? "",
    sort: isSort(sort, KEY_SORTS) && sort !== NEWEST ? sort : "",
    after: c.req.query("after") ?? "",
  };
}

/** The list of keys. Searching for the id of a key opens its page. */
const listKeys: Handler = async (c) => {
  const { deps, deps: { keys } } = c.var;
  const scope = ownScopeOf(c);
  const { ownerId, base } = scope;
  const query = queryOf(c);
  const { search, after, by, sort } = query;
  if (isKeyId(search) && await keys.get(ownerId, search) !== null) {
    return c.redirect(`${base}/${search}`, 302);
  }
  const page = await keys.list(ownerId, {
    filter: filterOf(query.filter),
    search,
    after,
    rows: PAGE_ROWS,
    day: usageDay(deps.now()),
    createdBy: scope.createdBy ?? (by || undefined),
    ...sort !== "" && { sort },
  });
  const { rows } = page;
  const isFirstKey = rows.length === 0 && address(base, query) === base;
  const create = <a class="button primary" href={`${base}/new`}>Create key</a>;
  return (
    <Page
      c={c}
      title="API keys"
      lead="A key lets a program use the models. Give each program its own key, so that you can disable one without affecting the others."
      actions={listActions(scope, !isFirstKey && create)}
    >
      {isFirstKey
        ? (
          <Empty
            title="Create your first key"
            lead="You see its full value once, right after you create it. Store it where your program can read it, then send a first request:"
          >
            {curlFor(deps)}
            {create}
          </Empty>
        )
        : (
          <>
            <KeyList
              scope={scope}
              query={query}
              page={page}
              columns={await columnsFor(deps, {
                rows,
                scope,
                here: address(base, query),
              })}
            />
            {await limitsCard(deps, ownerId, { whose: whoseOf(scope) })}
          </>
        )}
    </Page>
  );
};

/** The rows of a page, with what leads to other rows and orders. */
function KeyList({ scope, query, page, columns }: {
  scope: KeyScope;
  query: ListQuery;
  page: RowPage<KeyRow>;
  columns: readonly Column<KeyRow>[];
}) {
  const { base } = scope;
  const { rows, next, isPartial = false } = page;
  const { filter, search, by, after } = query;
  const to = (changed: Partial<ListQuery>) =>
    address(base, { ...query, after: "", ...changed });
  const sort = query.sort || NEWEST;
  return (
    <>
      <div class="row between">
        <Tabs
          label="Filter"
          current={filter || "all"}
          tabs={FILTERS}
          to={(name) => to({ filter: name === "all" ? "" : name })}
        />
        <Search
          action={base}
          placeholder="Description or last 4 characters"
          search={search}
          hidden={{ filter, by, sort: query.sort }}
        />
      </div>
      <div class="row between">
        <SelectedForm action={`${base}/disable`} next={to({ after })} />
        <SortChoice
          action={base}
          columns={columns}
          current={sort}
          hidden={{ filter, search, by }}
        />
      </div>
      <Table
        caption={captionOf(CAPTIONS[whoseOf(scope)], sort)}
        rows={rows}
        sorting={{ current: sort, to: (sort) => to({ sort }) }}
        empty={{
          title: "No keys found",
          lead: next === null
            ? "No key matches. Try fewer or shorter words, or another filter."
            : "No match among the keys searched so far. Choose Older to search the rest.",
          children: <a class="button" href={base}>Show all keys</a>,
        }}
        columns={columns}
      />
      <Pager
        after={after}
        next={next}
        isSorted={sort !== NEWEST}
        to={(after) => to({ after })}
      />
      <PartialNote isPartial={isPartial} />
    </>
  );
}

/** The columns of the list; changes lead back to `here`. */
async function columnsFor(
  deps: Pick<ConsoleDeps, "people" | "now" | "catalog">,
  { rows, scope, here }: {
    rows: readonly KeyRow[];
    scope: KeyScope;
    here: string;
  },
): Promise<Column<KeyRow>[]> {
  const { base } = scope;
  const present = new Set(rows.map(({ key }) => key.id));
  return [
    [
      "Key",
      ({ key }) => (
        <>
          <SelectBox value={key.id} name={key.description} />
          {keyName(key, base)}
          {rotationOf(key, { base, present })}
        </>
      ),
      undefined,
      "description",
    ],
    ...await creatorColumns(deps, { rows, scope }),
    ...stateColumns(deps.now(), deps.catalog.prices),
    ["Change", ({ key }) => switchOf(key, { base, look: "small", next: here })],
  ];
}

/** The filter that an address names. */
export const filterOf = (text: string | undefined): KeyFilter =>
  KEY_FILTERS.find((name) => name === text) ?? "all";

/** Keeps only the last characters of a pasted key, so that it is not shown again. */
export const cleanSearch = (search: string): string =>
  search.trim().slice(0, 200)
    .replace(/\bsk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g, "$1");

/**
 * Links to the form of a new key and, for those who may set them, to the defaults of
 * new keys.
 */
const listActions = (
  { base, createdBy }: Pick<KeyScope, "base" | "createdBy">,
  create: Child,
) => (
  <div class="row">
    {createdBy === undefined && (
      <a class="button" href={`${base}/defaults`}>Defaults</a>
    )}
    {create}
  </div>
);

const CAPTIONS = {
  own: "Your API keys",
  project: "Keys of the project",
  other: "Keys of the account",
} as const;

const captionOf = (name: string, sort: string): string =>
  `${name}, ${sort === NEWEST ? "newest first" : "sorted"}; days are UTC`;

/** The filters of lists of keys, with labels. */
export const FILTERS = KEY_FILTERS.map((name) =>
  [name, name === "unused" ? "Not used for 90 days" : labelOf(name)] as const
);

/** The columns that lists of keys have in common: state, times, use of today. */
export const stateColumns = (
  nowMs: number,
  { currency, id }: PriceTable,
): readonly Column<KeyRow>[] => [
  ["Status", ({ key }) => statusOf(key, nowMs), undefined, "status"],
  [
    "Created",
    ({ key }) => <Time ms={key.createdAtMs} as="day" />,
    undefined,
    "created",
  ],
  [
    "Last used",
    ({ key, lastUsedAtMs: ms }) => lastUseOf(key, { ms, nowMs }),
    undefined,
    "used",
  ],
  [
    "Expires",
    ({ key }) => <Moment ms={key.expiresAtMs} nowMs={nowMs} />,
    undefined,
    "expires",
  ],
  ["Requests today", (row) => number(row.totals.requests), "num", "requests"],
  ["Tokens today", (row) => number(row.totals.tokens), "num", "tokens"],
  ...(id === null ? [] : ["Cost today"]).map((label): Column<KeyRow> => [
    label,
    ({ totals }) => money(totals.cost, currency),
    "num",
    "cost",
  ]),
];

/** Who created the keys of a project, by name. */
async function creatorNames(
  { people }: Pick<ConsoleDeps, "people">,
  rows: readonly KeyRow[],
): Promise<ReadonlyMap<string, string>> {
  const ids = new Set(rows.flatMap(({ key }) => key.createdBy ?? []));
  const names = Array.from(
    ids,
    async (id) => [id, await people.name(id) ?? id] as const,
  );
  return new Map(await Promise.all(names));
}

/** In a project, a column with who created each key. */
async function creatorColumns(
  deps: Pick<ConsoleDeps, "people">,
  { rows, scope: { membership } }: {
    rows: readonly KeyRow[];
    scope: Pick<KeyScope, "membership">;
  },
): Promise<Column<KeyRow>[]> {
  if (membership === null) return [];
  const names = await creatorNames(deps, rows);
  return [[
    "Created by",
    ({ key: { createdBy } }) =>
      createdBy === null
        ? <span class="faint">Not recorded</span>
        : <Email>{names.get(createdBy) ?? createdBy}</Email>,
  ]];
}

/** The route of the list of keys of an account. */
export const keyListRoutes = (root: string): Routes => ({
  [root + OWN_KEYS]: { GET: listKeys },
});

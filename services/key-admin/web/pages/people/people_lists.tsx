/** The lists of all owners, projects and keys, for operators. */

import { usageDay } from "@gateway/shared/keys/limiter_state";
import { PAGE_ROWS } from "../../../domain/keys/key_page.ts";
import {
  ALL_KEY_SORTS,
  OWNER_SORTS,
  type PeopleQuery,
} from "../../../domain/operators/people_rows.ts";
import type { RowPage } from "../../../domain/store/redis.ts";
import { isSort, type SortValues } from "../../../domain/store/sorted.ts";
import type { ConsoleContext, Handler } from "../../context.ts";
import { operatorPath } from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import {
  address,
  type EmptyProps,
  Pager,
  Search,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import { type Column, PartialNote, SortChoice } from "../../view/sorting.tsx";
import { Email, keyName } from "../../view/texts.tsx";
import {
  cleanSearch,
  filterOf,
  FILTERS,
  NEWEST,
  stateColumns,
} from "../keys/keys_list.tsx";
import { ALL_KEYS, SelectBox, SelectedForm } from "../keys/keys_selected.tsx";
import { PEOPLE_VIEWS } from "../usage/addresses.ts";
import { ownerColumns } from "./owner_columns.tsx";

/** A list for operators. */
export interface View<Row> {
  /** The placeholder of its search. */
  placeholder: string;
  /** Reads a page of it. */
  read: (query: PeopleQuery) => Promise<RowPage<Row>>;
  /** The columns; `used` names the days whose use they show. */
  columns: (used: string) => readonly Column<Row>[];
  sorts: SortValues<Row>;
  /** What the page says while there is nothing to find, which may be. */
  none?: EmptyProps;
}

const NOT_FOUND: EmptyProps = {
  title: "Nothing found",
  lead: "Try fewer or shorter words.",
};
const NO_KEYS: EmptyProps = {
  title: "No keys",
  lead: "No account has a key yet.",
};

/** The days whose use is shown and compared. */
const USED_IN = [
  ["1", "Use of today"],
  ["30", "Use of 30 days"],
] as const;

/** The query in the address; members that it may leave out are empty. */
function queryOf(c: ConsoleContext, sorts: SortValues<never>) {
  const sort = c.req.query("sort") ?? "";
  const isOfKeys = c.req.path === ALL_KEYS;
  const filter = isOfKeys ? filterOf(c.req.query("filter")) : "all";
  return {
    search: cleanSearch(c.req.query("search") ?? ""),
    sort: isSort(sort, sorts) && sort !== NEWEST ? sort : "",
    days: !isOfKeys && c.req.query("days") === "30" ? "30" : "",
    filter: filter === "all" ? "" : filter,
  };
}

/** The page of a view that the address asks for, with its search. */
export async function showView<Row>(
  c: ConsoleContext,
  { placeholder, read, columns: columnsOf, sorts, none = NOT_FOUND }: View<Row>,
) {
  const { path } = c.req;
  const query = queryOf(c, sorts);
  const { search, sort, days, filter } = query;
  const after = c.req.query("after") ?? "";
  const { rows, next, isPartial = false } = await read({
    search,
    after,
    rows: PAGE_ROWS,
    day: usageDay(c.var.deps.now()),
    days: Number(days || "1"),
    filter: filterOf(filter),
    ...sort !== "" && { sort },
  });
  const isOfKeys = path === ALL_KEYS;
  const to = (changed: Partial<typeof query & { after: string }>) =>
    address(path, { ...query, ...changed });
  const current = sort || NEWEST;
  const columns = columnsOf(days === "30" ? "in 30 days" : "today");
  return (
    <Page
      c={c}
      title="People"
      lead="All owners and projects, with usage and keys. Only operators see this."
      actions={path === "/people/projects"
        ? <a class="button primary" href="/projects/new">Create project</a>
        : <a class="button primary" href="/people/new">Invite somebody</a>}
    >
      <Tabs
        label="View"
        tabs={PEOPLE_VIEWS}
        current={path}
        to={(view) => view}
      />
      <div class="row between">
        {isOfKeys
          ? (
            <Tabs
              label="Filter"
              tabs={FILTERS}
              current={filter || "all"}
              to={(name) => to({ filter: name === "all" ? "" : name })}
            />
          )
          : (
            <Tabs
              label="Days"
              tabs={USED_IN}
              current={days || "1"}
              to={(name) => to({ days: name === "1" ? "" : name })}
            />
          )}
        <Search
          action={path}
          search={search}
          placeholder={placeholder}
          hidden={{ sort, days, filter }}
        />
      </div>
      {isOfKeys && (
        <SelectedForm action={`${path}/disable`} next={to({ after })} />
      )}
      <SortChoice
        action={path}
        columns={columns}
        current={current}
        hidden={{ search, days, filter }}
      />
      <Table
        caption={`${sort === "" ? "Newest first" : "Sorted"}, days in UTC`}
        empty={search === "" && filter === "" && after === ""
          ? none
          : NOT_FOUND}
        rows={rows}
        columns={columns}
        sorting={{ current, to: (sort) => to({ sort }) }}
      />
      <Pager
        after={after}
        next={next}
        isSorted={sort !== ""}
        to={(after) => to({ after })}
      />
      <PartialNote isPartial={isPartial} />
    </Page>
  );
}

/** Shows all owners, with their usage, in the order of the address. */
export const listOwners: Handler = (c) => {
  const { people, now, catalog: { prices } } = c.var.deps;
  return showView(c, {
    placeholder: "Part of an e-mail address",
    read: (query) => people.list(query),
    columns: (used) => ownerColumns(now(), { used, prices }),
    sorts: OWNER_SORTS,
  });
};

/** Shows the keys of all accounts to operators. */
export const listKeys: Handler = (c) => {
  const { people, now, catalog } = c.var.deps;
  return showView(c, {
    placeholder: "Description, account, id or last 4",
    read: (query) => people.keys(query),
    sorts: ALL_KEY_SORTS,
    none: NO_KEYS,
    columns: () => [
      [
        "Key",
        ({ key }) => (
          <>
            <SelectBox
              value={`${key.ownerId}.${key.id}`}
              name={key.description}
            />
            {keyName(key, `/people/${key.ownerId}/keys`)}
            <p class="help">{key.id}</p>
          </>
        ),
        undefined,
        "description",
      ],
      [
        "Account",
        ({ ownerId, name }) => (
          <a href={operatorPath(ownerId)}>
            <Email>{name}</Email>
          </a>
        ),
        undefined,
        "account",
      ],
      ...stateColumns(now(), catalog.prices),
    ],
  });
};

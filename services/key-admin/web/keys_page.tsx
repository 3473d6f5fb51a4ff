import { isKeyId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import {
  BadCursor,
  type KeyFilter,
  type KeyPage,
  type KeyRow,
  PAGE_ROWS,
  type PageStart,
} from "../domain/keys/key_page.ts";
import type { Child } from "hono/jsx";
import type { ConsoleContext, Handler, Routes } from "./context.ts";
import {
  address,
  Count,
  Expiry,
  Head,
  Icon,
  LastUse,
  number,
  Pager,
  PostForm,
  Status,
  Table,
  Tabs,
  Time,
} from "./parts.tsx";
import { createKey } from "./key_form_page.tsx";
import { Curl } from "./key_requests.tsx";
import { showPage } from "./layout.tsx";

/** The list of keys. Searching for the id of a key opens its page. */
const listKeys: Handler = async (c, deps) => {
  const { ownerId } = c.get("signedIn").session;
  const search = cleanSearch(c.req.query("search") ?? "");
  if (isKeyId(search) && await deps.keys.get(ownerId, search) !== null) {
    return c.redirect(`/keys/${search}`, 302);
  }
  const filter = filterOf(c.req.query("filter"));
  const nowMs = deps.now();
  try {
    const page = await deps.keys.list(ownerId, {
      ...{ filter, search, rows: PAGE_ROWS, day: usageDay(nowMs) },
      start: startOf(c),
    });
    const props = { page, filter, search, nowMs };
    const isFirstKey = page.total === 0 && filter === "all" && search === "";
    return await showPage(
      c,
      deps,
      { title: "API keys", section: "keys" },
      isFirstKey ? <FirstKey apiUrl={deps.apiUrl} /> : (
        <>
          <ListHead>
            <CreateLink />
          </ListHead>
          <Toolbar {...props} />
          {page.rows.length === 0 ? <NothingFound {...props} /> : (
            <Table
              look="cards keys"
              caption="Your API keys, newest first; days are UTC"
              columns={COLUMNS}
            >
              {page.rows.map((row) => (
                <KeyLine key={row.key.id} row={row} nowMs={nowMs} />
              ))}
            </Table>
          )}
          <KeyPager {...props} />
        </>
      ),
    );
  } catch (error) {
    if (error instanceof BadCursor) return c.redirect("/keys", 302);
    throw error;
  }
};

export const keyListRoutes: Routes = {
  "/keys": { GET: listKeys, POST: createKey },
};

/** Keeps only the last characters of a pasted key, so that it is not shown again. */
const cleanSearch = (search: string): string =>
  search.trim().slice(0, 200)
    .replace(/\bsk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g, "$1");

const FILTERS: readonly (readonly [KeyFilter, label: string])[] = [
  ["all", "All"],
  ["enabled", "Enabled"],
  ["disabled", "Disabled"],
  ["with_expiry", "With expiry"],
];

const filterOf = (value: string | undefined): KeyFilter =>
  FILTERS.find(([name]) => name === value)?.[0] ?? "all";

function startOf(c: ConsoleContext): PageStart {
  const { after, before, last } = c.req.query();
  if (after !== undefined) return { at: "after", cursor: after };
  if (before !== undefined) return { at: "before", cursor: before };
  return { at: last === undefined ? "first" : "last" };
}

interface ListProps {
  page: KeyPage;
  filter: KeyFilter;
  search: string;
  nowMs: number;
}

const ListHead = ({ children }: { children?: Child }) => (
  <Head
    title="API keys"
    lead="A key lets one program use the models. Give each program its own key, so that you can disable it alone."
  >
    {children}
  </Head>
);

const FirstKey = ({ apiUrl }: { apiUrl: string }) => (
  <>
    <ListHead />
    <section class="card empty">
      <h2>Create your first key</h2>
      <p>
        You see its full value once, right after you create it. Store it where
        your program can read it, then send a first request:
      </p>
      <Curl apiUrl={apiUrl} />
      <CreateLink />
    </section>
  </>
);

const CreateLink = () => (
  <a class="button primary" href="/keys/new" data-dialog="">
    <Icon name="plus" /> Create key
  </a>
);

/** An address of the list. */
function listAddress(
  { filter, search }: Pick<ListProps, "filter" | "search">,
  more: Record<string, string> = {},
): string {
  const named = filter === "all" ? "" : filter;
  return address("/keys", { filter: named, search, ...more });
}

function Toolbar({ filter, search }: ListProps) {
  return (
    <div class="row between">
      <Tabs
        label="Filter"
        current={filter}
        tabs={FILTERS.map(([name, label]) => [
          name,
          label,
          listAddress({ filter: name, search }),
        ])}
      />
      <form class="search" method="get" action="/keys" role="search">
        {filter !== "all" && (
          <input type="hidden" name="filter" value={filter} />
        )}
        <label class="hidden" for="search">Find keys</label>
        <Icon name="search" />
        <input
          id="search"
          name="search"
          type="search"
          value={search}
          placeholder="Description or last 4 characters"
          maxlength={100}
          autocomplete="off"
          data-key-search=""
        />
        <button type="submit">Find</button>
      </form>
    </div>
  );
}

function NothingFound({ search, page }: ListProps) {
  return (
    <section class="card empty">
      <h2>{search === "" ? "No keys here" : "No keys found"}</h2>
      {search !== "" && (
        <>
          <p>
            {page.next === null
              ? "No key has all of these words in its description. Try fewer or shorter words."
              : "No match among the keys searched so far. Next searches the others."}
          </p>
          <a class="button" href="/keys">Show all keys</a>
        </>
      )}
    </section>
  );
}

function KeyPager({ page, filter, search }: ListProps) {
  const { previous, next, total, before, rows } = page;
  if (previous === null && next === null) return null;
  const first = (before ?? 0) + 1;
  const to = (name: string, cursor: string | null) =>
    cursor && listAddress({ filter, search }, { [name]: cursor });
  return (
    <Pager
      links={[
        ["First", previous && listAddress({ filter, search })],
        ["Previous", to("before", previous)],
        ["Next", to("after", next)],
        ["Last", to("last", next && "1")],
      ]}
    >
      {total === null
        ? `${rows.length} keys on this page`
        : `${number(first)}–${number(first + rows.length - 1)} of ${
          number(total)
        }`}
    </Pager>
  );
}

const COLUMNS: [label: string, isNumber?: boolean][] = [
  ["Key"],
  ["Status"],
  ["Created"],
  ["Last used"],
  ["Requests today", true],
  ["Tokens today", true],
  ["Expires"],
  ["On"],
];

function KeyLine({ row, nowMs }: { row: KeyRow; nowMs: number }) {
  const { key, lastUsedAtMs, requestsToday, tokensToday } = row;
  return (
    <tr class={key.state === "enabled" ? undefined : "dim"}>
      <th scope="row">
        <a class="key-name" href={`/keys/${key.id}`}>
          <bdi>{key.description}</bdi>
        </a>
        <code class="hint">{key.hint}</code>
      </th>
      <td data-label="Status">
        <Status keyRecord={key} nowMs={nowMs} />
      </td>
      <td class="later" data-label="Created">
        <Time ms={key.createdAtMs} as="day" />
      </td>
      <td data-label="Last used">
        <LastUse ms={lastUsedAtMs} />
      </td>
      <td data-label="Requests today" class="num">
        <Count value={requestsToday} />
      </td>
      <td data-label="Tokens today" class="num">
        <Count value={tokensToday} />
      </td>
      <td class="later" data-label="Expires">
        <Expiry keyRecord={key} nowMs={nowMs} />
      </td>
      <td class="act">
        <KeySwitch row={row} />
      </td>
    </tr>
  );
}

/** Enabling works at once; disabling asks whether running requests end too. */
function KeySwitch({ row: { key } }: { row: KeyRow }) {
  if (key.state === "enabled") {
    return (
      <a
        class="switch on"
        href={`/keys/${key.id}/ask/disable`}
        data-dialog=""
        role="button"
        aria-label={`Disable ${key.description}`}
        title="Disable"
      >
        <span />
      </a>
    );
  }
  return (
    <PostForm
      action={`/keys/${key.id}/enable`}
      hidden={{ version: key.version, from: "list" }}
    >
      <button
        class="switch"
        type="submit"
        aria-label={`Enable ${key.description}`}
        title="Enable"
      >
        <span />
      </button>
    </PostForm>
  );
}

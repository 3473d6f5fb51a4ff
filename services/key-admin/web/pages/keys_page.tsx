import { isKeyId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { KeyRecord } from "@gateway/shared/keys/record";
import type { KeyFilter, KeyRow } from "../../domain/keys/key_page.ts";
import { KEY_FILTERS, PAGE_ROWS } from "../../domain/keys/key_page.ts";
import type { Handler } from "../context.ts";
import { postKey } from "./key_form.tsx";
import { showPage } from "../layout.tsx";
import { limitsCard } from "./limits_view.tsx";
import * as view from "../key_parts.tsx";
import type { Column } from "../lists.tsx";
import { address, Empty, Pager, Search, Table, Tabs } from "../lists.tsx";
import { PostForm } from "../parts.tsx";
import { labelOf, Moment, number, Time } from "../texts.tsx";

/** The list of keys. Searching for the id of a key opens its page. */
const listKeys: Handler = async (c) => {
  const { deps, deps: { keys }, signedIn: { session } } = c.var;
  const search = cleanSearch(c.req.query("search") ?? "");
  if (isKeyId(search) && await keys.get(session.ownerId, search) !== null) {
    return c.redirect(`/keys/${search}`, 302);
  }
  const asked = c.req.query("filter");
  const filter = KEY_FILTERS.find((name) => name === asked) ?? "all";
  const after = c.req.query("after") ?? "";
  const nowMs = deps.now();
  const day = usageDay(nowMs);
  const query = { filter, search, after, rows: PAGE_ROWS, day };
  const { rows, next } = await keys.list(session.ownerId, query);
  const present = new Set(rows.map(({ key }) => key.id));
  const to = (filter: KeyFilter, after = "") =>
    address("/keys", { filter: filter === "all" ? "" : filter, search, after });
  const here = to(filter, after);
  const isFirstKey = rows.length === 0 && here === "/keys";
  const create = <a class="button primary" href="/keys/new">Create key</a>;
  return await showPage(
    c,
    {
      title: "API keys",
      lead:
        "A key lets a program use the models. Give each program its own key, so that you can disable one without affecting the others.",
      actions: !isFirstKey && create,
    },
    isFirstKey
      ? (
        <Empty
          title="Create your first key"
          lead="You see its full value once, right after you create it. Store it where your program can read it, then send a first request:"
        >
          {view.curlFor(deps)}
          {create}
        </Empty>
      )
      : (
        <>
          <div class="row between">
            <Tabs label="Filter" current={filter} tabs={FILTERS} to={to} />
            <Search
              action="/keys"
              label="Find keys"
              search={search}
              placeholder="Description or last 4 characters"
              hidden={{ filter }}
            />
          </div>
          <Table
            caption="Your API keys, newest first; days are UTC"
            rows={rows}
            empty={{
              title: "No keys found",
              lead: next === null
                ? "No key matches. Try fewer or shorter words, or another filter."
                : "No match among the keys searched so far. Choose Older to search the rest.",
              children: <a class="button" href="/keys">Show all keys</a>,
            }}
            columns={[
              ["Key", ({ key }) => (
                <>
                  {view.keyName(key, true)}
                  {view.rotationOf(key, present)}
                </>
              )],
              ...stateColumns(nowMs),
              ["Change", ({ key }) => switchOf(key, here)],
            ]}
          />
          <Pager {...{ after, next }} to={(after) => to(filter, after)} />
          {await limitsCard(c)}
        </>
      ),
  );
};

export const keyListRoutes = {
  "/keys": { GET: listKeys, POST: postKey },
};

/** Keeps only the last characters of a pasted key, so that it is not shown again. */
export const cleanSearch = (search: string): string =>
  search.trim().slice(0, 200)
    .replace(/\bsk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g, "$1");

const FILTERS = KEY_FILTERS.map((name) => [name, labelOf(name)] as const);

export const stateColumns = (nowMs: number): readonly Column<KeyRow>[] => [
  ["Status", ({ key }) => view.statusOf(key, nowMs)],
  ["Created", ({ key }) => <Time ms={key.createdAtMs} as="day" />],
  [
    "Last used",
    ({ key, lastUsedAtMs: ms }) => view.lastUseOf(key, { ms, nowMs }),
  ],
  ["Expires", ({ key }) => <Moment ms={key.expiresAtMs} nowMs={nowMs} />],
  ["Requests today", (row) => number(row.totals.requests), "num"],
  ["Tokens today", (row) => number(row.totals.tokens), "num"],
];

/** Disables a key after a question, or enables it. Both lead back to the list. */
function switchOf(
  { id, state, version, description }: KeyRecord,
  next: string,
) {
  const what = <span class="hidden">{description}</span>;
  const question = address(`/keys/${id}/ask/disable`, { next });
  return state === "enabled"
    ? <a class="button small" href={question}>Disable {what}</a>
    : (
      <PostForm
        action={`/keys/${id}/enable`}
        hidden={{ version, next }}
        submit={<>Enable {what}</>}
        look="small"
      />
    );
}

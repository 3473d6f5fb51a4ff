/** The list of keys, and one key. */

import { isKeyId } from "@gateway/shared/keys/key";
import { networkText } from "@gateway/shared/keys/networks";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { endUsersWords } from "../../../domain/keys/end_users.ts";
import {
  KEY_FILTERS,
  type KeyFilter,
  type KeyRow,
  PAGE_ROWS,
} from "../../../domain/keys/key_page.ts";
import { isExpired } from "../../../domain/keys/key_record.ts";
import { readLastUse } from "../../../domain/keys/usage.ts";
import type { Child } from "hono/jsx";
import type { PriceTable } from "@gateway/shared/models/price_list";
import type { ConsoleDeps, Handler, Routes } from "../../context.ts";
import {
  findKey,
  KEYS_OF_OWNER,
  type KeyScope,
  keyScopeOf,
  operatorPath,
  OWN_KEYS,
  ownScopeOf,
  whoseOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import {
  address,
  type Column,
  Empty,
  Facts,
  Pager,
  Search,
  Table,
  Tabs,
} from "../../view/parts.tsx";
import {
  absenceOf,
  Email,
  keyName,
  labelOf,
  lastUseOf,
  Moment,
  money,
  number,
  permissionOf,
  rotationOf,
  statusOf,
  Time,
} from "../../view/texts.tsx";
import { AuditTable, OperatorNotice } from "../audit_page.tsx";
import { ask, change, rotateKey, switchOf } from "./key_changes.tsx";
import { curlFor, tryLink } from "./key_created.tsx";
import { limitsCard } from "../usage/limits_view.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";
import { rangeOf, usageView } from "../usage/usage_page.tsx";

/** The list of keys. Searching for the id of a key opens its page. */
const listKeys: Handler = async (c) => {
  const { deps, deps: { keys } } = c.var;
  const { ownerId, base, ...scope } = ownScopeOf(c);
  const search = cleanSearch(c.req.query("search") ?? "");
  if (isKeyId(search) && await keys.get(ownerId, search) !== null) {
    return c.redirect(`${base}/${search}`, 302);
  }
  const filterName = c.req.query("filter");
  const filter = KEY_FILTERS.find((name) => name === filterName) ?? "all";
  const after = c.req.query("after") ?? "";
  const nowMs = deps.now();
  const day = usageDay(nowMs);
  const by = c.req.query("by") ?? "";
  const createdBy = scope.createdBy ?? (by || undefined);
  const query = { filter, search, after, rows: PAGE_ROWS, day, createdBy };
  const { rows, next } = await keys.list(ownerId, query);
  const present = new Set(rows.map(({ key }) => key.id));
  const creators = await creatorColumns(deps, { rows, scope });
  const to = (filter: KeyFilter, after = "") =>
    address(base, {
      filter: filter === "all" ? "" : filter,
      search,
      after,
      by,
    });
  const here = to(filter, after);
  const isFirstKey = rows.length === 0 && here === base;
  const create = <a class="button primary" href={`${base}/new`}>Create key</a>;
  return (
    <Page
      c={c}
      title="API keys"
      lead="A key lets a program use the models. Give each program its own key, so that you can disable one without affecting the others."
      actions={listActions({ base, ...scope }, !isFirstKey && create)}
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
            <div class="row between">
              <Tabs label="Filter" current={filter} tabs={FILTERS} to={to} />
              <Search
                action={base}
                placeholder="Description or last 4 characters"
                search={search}
                hidden={{ filter, ...by !== "" && { by } }}
              />
            </div>
            <Table
              caption={CAPTIONS[whoseOf(scope)]}
              rows={rows}
              empty={{
                title: "No keys found",
                lead: next === null
                  ? "No key matches. Try fewer or shorter words, or another filter."
                  : "No match among the keys searched so far. Choose Older to search the rest.",
                children: <a class="button" href={base}>Show all keys</a>,
              }}
              columns={[
                ["Key", ({ key }) => (
                  <>
                    {keyName(key, base)}
                    {rotationOf(key, { base, present })}
                  </>
                )],
                ...creators,
                ...stateColumns(nowMs, deps.catalog.prices),
                [
                  "Change",
                  ({ key }) =>
                    switchOf(key, {
                      base,
                      look: "small",
                      next: here,
                    }),
                ],
              ]}
            />
            <Pager
              after={after}
              next={next}
              to={(after) => to(filter, after)}
            />
            {await limitsCard(deps, ownerId, { whose: whoseOf(scope) })}
          </>
        )}
    </Page>
  );
};

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
  own: "Your API keys, newest first; days are UTC",
  project: "Keys of the project, newest first; days are UTC",
  other: "Keys of the account, newest first; days are UTC",
} as const;

const FILTERS = KEY_FILTERS.map((name) => [name, labelOf(name)] as const);

/** The columns that lists of keys have in common: state, times, use of today. */
export const stateColumns = (
  nowMs: number,
  { currency, id }: PriceTable,
): readonly Column<KeyRow>[] => [
  ["Status", ({ key }) => statusOf(key, nowMs)],
  ["Created", ({ key }) => <Time ms={key.createdAtMs} as="day" />],
  [
    "Last used",
    ({ key, lastUsedAtMs: ms }) => lastUseOf(key, { ms, nowMs }),
  ],
  ["Expires", ({ key }) => <Moment ms={key.expiresAtMs} nowMs={nowMs} />],
  ["Requests today", (row) => number(row.totals.requests), "num"],
  ["Tokens today", (row) => number(row.totals.tokens), "num"],
  ...(id === null ? [] : ["Cost today"]).map((label): Column<KeyRow> => [
    label,
    ({ totals }) => money(totals.cost, currency),
    "num",
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

const HISTORY_ROWS = 10;

const showKey: Handler = async (c) => {
  const { deps, deps: { redis, audit, keys, now, catalog } } = c.var;
  const scope = await keyScopeOf(c);
  const { root, base, other, membership } = scope;
  const isOwn = other === null;
  const key = await findKey(c, scope);
  const { ownerId, id, replaces, replacedBy } = key;
  const nowMs = now();
  const about = { action: "key.", keyId: id, before: "", rows: HISTORY_ROWS };
  const others = [replaces, replacedBy].flatMap((name) => name?.[0] ?? []);
  const here = `${base}/${id}`;
  const [usage, limits, ms, history, present] = await Promise.all([
    usageView(deps, { ownerId, keyId: id, base: here, range: rangeOf(c) }),
    limitsCard(deps, ownerId, { key, whose: whoseOf(scope) }),
    readLastUse(redis, key),
    audit.read(ownerId, about),
    keys.present(ownerId, others),
  ]);
  const to = (label: string, page: string, look = "") => (
    <a class={`button ${look}`} href={`${here}/${page}`}>{label}</a>
  );
  const creator = (membership ?? other) && key.createdBy &&
    await deps.people.name(key.createdBy);
  const isEnabled = key.state === "enabled" && !isExpired(key, nowMs);
  const { account } = c.var.signedIn;
  const allowed = key.models.map((id) =>
    catalog.has(id) ? id : `${id} (${absenceOf(catalog)})`
  );
  return (
    <Page
      c={c}
      title={key.description}
      lead={
        <>
          <code class="hint">{key.hint}</code> {statusOf(key, nowMs)}
          {rotationOf(key, { base, present })}
        </>
      }
      actions={
        <div class="row">
          {to("Edit", "edit")}
          {isEnabled && isOwn && to("Rotate", "ask/rotate")}
          {switchOf(key, scope)}
          {to("Delete", "ask/delete", "bad")}
        </div>
      }
    >
      {isOwn && membership === null && (
        <OperatorNotice rows={history.rows} account={account} />
      )}
      <Facts
        facts={{
          ...other !== null && {
            "Account": (
              <a href={operatorPath(ownerId)}>
                <Email>{other.name}</Email>
              </a>
            ),
          },
          "Created": <Time ms={key.createdAtMs} as="minute" />,
          ...creator && { "Created by": <Email>{creator}</Email> },
          "Last used": lastUseOf(key, { ms, nowMs }),
          "Expires": <Moment ms={key.expiresAtMs} nowMs={nowMs} />,
          "Permissions": key.scopes.map(permissionOf).join(", "),
          "Models": allowed.join(", ") || "All",
          ...key.networks.length > 0 && {
            "Allowed addresses": key.networks.map(networkText).join(", "),
          },
          ...key.endUsers && {
            "End users": <code>{endUsersWords(key.endUsers)}</code>,
          },
          "Key ID": <code>{id}</code>,
        }}
      />
      {limits}
      <h2>Usage</h2>
      {usage}
      {isOwn && (
        <>
          <div class="row between">
            <h2>Example request</h2>
            {tryLink(deps, { root, key })}
          </div>
          {curlFor(deps, key)}
          <p>
            The <a href="/reference">API reference</a>{" "}
            lists all fields and errors.
          </p>
        </>
      )}
      <h2>History</h2>
      <AuditTable rows={history.rows} caption="What happened to this key" />
    </Page>
  );
};

/** The routes of one key, below this path. */
const routesBelow = (keys: string): Routes => ({
  [`${keys}/:id`]: { GET: showKey },
  [`${keys}/:id/ask/disable`]: { GET: ask("disable") },
  [`${keys}/:id/ask/delete`]: { GET: ask("delete") },
  [`${keys}/:id/enable`]: { POST: change("enable") },
  [`${keys}/:id/disable`]: { POST: change("disable") },
  [`${keys}/:id/delete`]: { POST: behindPassword(change("delete")) },
});

/** The routes of the keys of an account: the list, and those of each key. */
export const keyRoutes = (root: string): Routes => ({
  [root + OWN_KEYS]: { GET: listKeys },
  ...routesBelow(root + OWN_KEYS),
  [`${root + OWN_KEYS}/:id/ask/rotate`]: { GET: ask("rotate") },
  [`${root + OWN_KEYS}/:id/rotate`]: { POST: behindPassword(rotateKey) },
});

/**
 * The same for operators and any key. Nobody rotates somebody else's key: its new value
 * would have to be passed on.
 */
export const operatorKeyRoutes: Routes = {
  ...routesBelow(KEYS_OF_OWNER),
  [`${KEYS_OF_OWNER}/:id/ask/enable`]: { GET: ask("enable") },
};

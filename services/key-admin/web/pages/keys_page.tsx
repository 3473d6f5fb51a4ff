import type { JSX } from "hono/jsx/jsx-runtime";
import type { KeyFilter, KeyPage, KeyRow } from "../../keys/key_page.ts";
import { CopyButton } from "./copy_button.tsx";
import { FormToken, type Frame, Page } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { Count, Expiry, LastUse, number, Status, Time } from "./values.tsx";

/** What the list of keys shows. */
export interface KeysPageProps {
  frame: Frame;
  page: KeyPage;
  filter: KeyFilter;
  search: string;
  nowMs: number;
  apiUrl: string;
}

const FILTERS: readonly [KeyFilter, label: string][] = [
  ["all", "All"],
  ["enabled", "Enabled"],
  ["disabled", "Disabled"],
  ["with_expiry", "With expiry"],
];

/** The list of keys: the console's first page. */
export function KeysPage(props: KeysPageProps): JSX.Element {
  const { frame, page, filter, search } = props;
  const isFirstKey = page.total === 0 && filter === "all" && search === "";
  return (
    <Page title="API keys" frame={frame} section="keys">
      <div class="head">
        <div>
          <h1>API keys</h1>
          <p class="lead">
            A key lets one program use the models. Give each program its own, so
            that you can switch it off alone.
          </p>
        </div>
        {!isFirstKey && <CreateLink />}
      </div>
      {isFirstKey ? <FirstKey {...props} /> : (
        <>
          <Toolbar {...props} />
          {page.rows.length === 0
            ? <NothingFound {...props} />
            : <KeyTable {...props} />}
          <Pager {...props} />
        </>
      )}
    </Page>
  );
}

function CreateLink(): JSX.Element {
  return (
    <a class="button primary" href="/keys/new" data-dialog="">
      <Icon name="plus" /> Create key
    </a>
  );
}

function FirstKey({ apiUrl }: KeysPageProps): JSX.Element {
  return (
    <section class="card empty">
      <div class="empty-icon">
        <Icon name="key" />
      </div>
      <h2>Make your first key</h2>
      <p>
        You see its full value once, right after making it. Put it where your
        program can read it, and send a first request:
      </p>
      <Curl apiUrl={apiUrl} />
      <CreateLink />
    </section>
  );
}

/** A request to try, with the key in a variable so that it stays out of the shell's history. */
export function Curl({ apiUrl }: { apiUrl: string }): JSX.Element {
  const command = `curl ${apiUrl}/chat/completions \\
  -H "Authorization: Bearer $API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "neutral-3.7-plus",
       "messages": [{"role": "user", "content": "Hello"}]}'`;
  return (
    <div class="code">
      <pre
        tabindex={0}
        aria-label="Example request"
      ><code id="curl">{command}</code></pre>
      <CopyButton source="curl" />
    </div>
  );
}

function Toolbar({ filter, search }: KeysPageProps): JSX.Element {
  return (
    <div class="toolbar">
      <nav class="tabs" aria-label="Which keys">
        {FILTERS.map(([name, label]) => (
          <a
            href={address({ filter: name, search })}
            aria-current={name === filter ? "true" : undefined}
          >
            {label}
          </a>
        ))}
      </nav>
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

function NothingFound({ search, page }: KeysPageProps): JSX.Element {
  return (
    <section class="card empty">
      <h2>
        {search === "" ? "No keys here" : "No key found"}
      </h2>
      <p>
        {page.next === null
          ? "Words are found by their beginning. Try fewer or shorter ones."
          : "Nothing among the keys looked at so far: there are more."}
      </p>
      {search !== "" && <a class="button" href="/keys">Show all keys</a>}
    </section>
  );
}

function KeyTable(props: KeysPageProps): JSX.Element {
  return (
    <div class="table-box">
      <table class="keys">
        <caption class="hidden">Your API keys, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col">Status</th>
            <th scope="col">Created</th>
            <th scope="col">Last used</th>
            <th scope="col" class="num" title="Since 00:00 UTC">
              Requests today
            </th>
            <th scope="col" class="num" title="Since 00:00 UTC">
              Tokens today
            </th>
            <th scope="col">Expires</th>
            <th scope="col">
              <span class="hidden">Switch</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {props.page.rows.map((row) => (
            <KeyLine key={row.key.id} row={row} {...props} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function KeyLine(
  { row, frame, nowMs }: KeysPageProps & { row: KeyRow },
): JSX.Element {
  const { key, lastUsedAtMs, requestsToday, tokensToday } = row;
  return (
    <tr class={key.state === "enabled" ? "" : "dim"}>
      <th scope="row" data-label="Key">
        <a class="key-name" href={`/keys/${key.id}`}>
          <bdi>{key.description}</bdi>
        </a>
        <code class="hint">{key.hint}</code>
      </th>
      <td data-label="Status">
        <Status keyRecord={key} nowMs={nowMs} />
      </td>
      <td data-label="Created">
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
      <td data-label="Expires">
        <Expiry keyRecord={key} nowMs={nowMs} />
      </td>
      <td class="act">
        <KeySwitch row={row} frame={frame} />
      </td>
    </tr>
  );
}

/** Enabling works at once; disabling asks whether running requests shall end too. */
function KeySwitch({ row: { key }, frame }: {
  row: KeyRow;
  frame: Frame;
}): JSX.Element {
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
    <form method="post" action={`/keys/${key.id}/enable`}>
      <FormToken frame={frame} />
      <input type="hidden" name="version" value={String(key.version)} />
      <input type="hidden" name="from" value="list" />
      <button
        class="switch"
        type="submit"
        aria-label={`Enable ${key.description}`}
        title="Enable"
      >
        <span />
      </button>
    </form>
  );
}

function Pager({ page, filter, search }: KeysPageProps): JSX.Element | null {
  const { previous, next, total, before, rows } = page;
  if (previous === null && next === null) return null;
  const first = (before ?? 0) + 1;
  return (
    <nav class="pager" aria-label="Pages">
      <p>
        {total === null
          ? `${rows.length} keys on this page`
          : `${number(first)}–${number(first + rows.length - 1)} of ${
            number(total)
          }`}
      </p>
      <div>
        <PagerLink label="First" to={previous && address({ filter, search })} />
        <PagerLink
          label="Previous"
          to={previous && address({ filter, search, before: previous })}
        />
        <PagerLink
          label="Next"
          to={next && address({ filter, search, after: next })}
        />
        <PagerLink
          label="Last"
          to={next && address({ filter, search, last: "1" })}
        />
      </div>
    </nav>
  );
}

/** A step to another page, or its place when there is none. */
export function PagerLink(
  { label, to }: { label: string; to: string | null },
): JSX.Element {
  return to === null
    ? <span class="button small" aria-disabled="true">{label}</span>
    : <a class="button small" href={to}>{label}</a>;
}

function address(parts: Record<string, string>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parts)) {
    if (value !== "" && value !== "all") query.set(name, value);
  }
  return query.size === 0 ? "/keys" : `/keys?${query}`;
}

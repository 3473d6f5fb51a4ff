import type { JSX } from "hono/jsx/jsx-runtime";
import type { KeyFilter, KeyPage } from "../../domain/keys/key_page.ts";
import { Curl } from "./curl.tsx";
import { type Frame, Page } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { KeyTable } from "./key_table.tsx";
import { PagerLink } from "./pager.tsx";
import { number } from "./values.tsx";

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
            : <KeyTable rows={page.rows} frame={frame} nowMs={props.nowMs} />}
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

function address(parts: Record<string, string>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parts)) {
    if (value !== "" && value !== "all") query.set(name, value);
  }
  return query.size === 0 ? "/keys" : `/keys?${query}`;
}

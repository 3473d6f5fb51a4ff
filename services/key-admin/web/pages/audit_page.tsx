import type { JSX } from "hono/jsx/jsx-runtime";
import type { AuditPage as Entries } from "../../domain/audit/audit_log.ts";
import { AuditTable } from "./audit_view.tsx";
import { type Frame, Page } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { PagerLink } from "./pager.tsx";

/** What the log can be narrowed to: the beginning of the action. */
export const AUDIT_FILTERS: readonly [prefix: string, label: string][] = [
  ["", "Everything"],
  ["key.", "Keys"],
  ["session.", "Sign-in"],
  ["account.", "Account"],
];

/** What the audit page shows. */
export interface AuditPageProps {
  frame: Frame;
  entries: Entries;
  action: string;
  isFirst: boolean;
}

/** Who did what, when and from where. */
export function AuditPage(props: AuditPageProps): JSX.Element {
  const { frame, entries: { rows, next }, action, isFirst } = props;
  return (
    <Page title="Audit log" frame={frame} section="audit">
      <div class="head">
        <div>
          <h1>Audit log</h1>
          <p class="lead">
            Every change to your keys and every sign-in. Entries cannot be
            changed or removed here.
          </p>
        </div>
        <a class="button" href={address("/audit.csv", { action })}>
          <Icon name="download" /> Download CSV
        </a>
      </div>
      <Filters action={action} />
      {rows.length === 0
        ? <NoEntries isFirst={isFirst} />
        : <AuditTable rows={rows} caption="Audit log, newest first" />}
      {!(isFirst && next === null) && <Pager {...props} />}
    </Page>
  );
}

function Filters({ action }: { action: string }): JSX.Element {
  return (
    <nav class="tabs" aria-label="Which entries">
      {AUDIT_FILTERS.map(([prefix, label]) => (
        <a
          key={label}
          href={address("/audit", { action: prefix })}
          aria-current={prefix === action ? "true" : undefined}
        >
          {label}
        </a>
      ))}
    </nav>
  );
}

function NoEntries({ isFirst }: { isFirst: boolean }): JSX.Element {
  return (
    <section class="card empty">
      <h2>No entries {isFirst ? "yet" : "here"}</h2>
      <p>What happens to your keys and your account is written down here.</p>
    </section>
  );
}

function Pager(
  { entries: { next }, action, isFirst }: AuditPageProps,
): JSX.Element {
  return (
    <nav class="pager" aria-label="Pages">
      <p />
      <div>
        <PagerLink
          label="Newest"
          to={isFirst ? null : address("/audit", { action })}
        />
        <PagerLink
          label="Older"
          to={next && address("/audit", { action, before: next })}
        />
      </div>
    </nav>
  );
}

function address(path: string, parts: Record<string, string>): string {
  const query = new URLSearchParams(
    Object.entries(parts).filter(([, value]) => value !== ""),
  );
  return query.size === 0 ? path : `${path}?${query}`;
}

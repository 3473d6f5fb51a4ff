/** The page "Audit log": who did what, when and from where. */

import type { AuditRow } from "../../domain/audit/audit_log.ts";
import type { Account } from "../../domain/owners/owner_store.ts";
import {
  answerCsv,
  type ConsoleContext,
  type Handler,
  type Routes,
} from "../context.ts";
import { OWN_KEYS, ownScopeOf } from "../request/key_scope.ts";
import { Page } from "../view/layout.tsx";
import { address, Banner, Noted, Pager, Table, Tabs } from "../view/parts.tsx";
import { Email, keyName, labelOf, Time } from "../view/texts.tsx";

const AUDIT_ROWS = 50;

const FILTERS: readonly (readonly [prefix: string, label: string])[] = [
  ["", "Everything"],
  ["key.", "Keys"],
  ["budget.", "Budgets"],
  ["session.", "Sign-in"],
  ["account.", "Account"],
  ["owner.", "By operators"],
  ["project.", "Projects"],
  ["model.", "Models"],
];

const PROJECT_FILTERS = FILTERS.filter(([prefix]) =>
  ["", "key.", "budget.", "project."].includes(prefix)
);

const showAudit: Handler = async (c) => {
  const { deps: { audit, keys } } = c.var;
  const { ownerId, root, base, membership, createdBy } = ownScopeOf(c);
  const action = actionOf(c);
  const before = c.req.query("before") ?? "";
  const isShown = shownTo(c, createdBy);
  const query = { action, keyId: "", before, rows: AUDIT_ROWS, isShown };
  const { rows, next } = await audit.read(ownerId, query);
  const present = await keys.present(ownerId, rows.map(({ keyId }) => keyId));
  return (
    <Page
      c={c}
      title="Audit log"
      lead={membership === null
        ? "Every change to your keys and every sign-in. Entries cannot be changed or deleted here."
        : createdBy === undefined
        ? "Every change to the keys and members of the project. Entries cannot be changed or deleted here."
        : "What you did in the project, and every change of its members. The page of each key shows all that happened to it."}
      actions={
        <a class="button" href={address(`${root}/audit.csv`, { action })}>
          Download CSV
        </a>
      }
    >
      <Tabs
        label="Filter"
        current={action}
        tabs={membership === null ? FILTERS : PROJECT_FILTERS}
        to={(action) => address(`${root}/audit`, { action })}
      />
      <AuditTable
        caption="Audit log, newest first"
        rows={rows}
        present={present}
        base={base}
      />
      <Pager
        after={before}
        next={next}
        to={(before) => address(`${root}/audit`, { action, before })}
      />
    </Page>
  );
};

const auditCsv: Handler = (c) => {
  const { ownerId, createdBy } = ownScopeOf(c);
  const query = { action: actionOf(c), isShown: shownTo(c, createdBy) };
  return answerCsv(c, "audit.csv", c.var.deps.audit.csv(ownerId, query));
};

/** The routes of the audit log of an account. */
export const auditRoutes = (root: string): Routes => ({
  [`${root}/audit`]: { GET: showAudit },
  [`${root}/audit.csv`]: { GET: auditCsv },
});

/**
 * Returns the filter for a member, who sees only their own changes and those of the
 * project itself.
 */
function shownTo(c: ConsoleContext, createdBy: string | undefined) {
  const { email } = c.var.signedIn.account;
  return ({ action, by }: AuditRow): boolean =>
    createdBy === undefined || by === email || action.startsWith("project.");
}

function actionOf(c: ConsoleContext): string {
  const action = c.req.query("action");
  return FILTERS.find(([prefix]) => prefix === action)?.[0] ?? "";
}

/**
 * Labels of actions whose names are not clear enough, as `Key created` for
 * `key.created` is.
 */
const LABELS: Readonly<Record<string, string>> = {
  "key.stop_requested": "Running requests stopped",
  "key.request_stopped": "A running request stopped",
  "budget.reached": "Budget reached a threshold",
  "model.changed": "Model changed",
  "model.change_undone": "Change of a model undone",
  "session.signed_in": "Signed in",
  "session.confirmed": "Password confirmed",
  "session.refused": "Sign-in refused",
  "session.signed_out": "Signed out",
  "session.revoked": "Session ended",
  "account.reset_link_made": "Password reset link created",
  "account.second_factor_on": "Two-step sign-in turned on",
  "account.second_factor_off": "Two-step sign-in turned off",
};

/**
 * Tells the owner of a key who changed it last, and why, if that was an operator.
 * `rows` are the entries about the key, newest first.
 */
export function OperatorNotice({ rows: [last], account }: {
  rows: readonly AuditRow[];
  account: Account;
}) {
  if (last === undefined || last.by === account.email) return null;
  const { action, by, detail, timeMs } = last;
  return (
    <Banner look="warn">
      {LABELS[action] ?? labelOf(action)} by {by},{" "}
      <Time ms={timeMs} as="minute" />
      {detail && <>: {detail}</>}
    </Banner>
  );
}

/** A table of entries, newest first as they come. */
export const AuditTable = (
  { rows, caption, present = new Set(), base = OWN_KEYS }: {
    rows: readonly AuditRow[];
    caption: string;
    /** The ids of the keys to link to: those that still exist. */
    present?: ReadonlySet<string>;
    /** The path of the keys. */
    base?: string;
  },
) => (
  <Table
    caption={caption}
    rows={rows}
    empty={{
      title: "No entries",
      lead: "Changes to your keys and your account appear here.",
    }}
    columns={[
      [
        "What",
        ({ action, detail }) => (
          <Noted note={detail}>{LABELS[action] ?? labelOf(action)}</Noted>
        ),
      ],
      ["Key", ({ keyId: id, description, hint }) =>
        id
          ? keyName(
            { id, description, hint },
            present.has(id) ? base : undefined,
          )
          : "–"],
      ["When", (row) => <Time ms={row.timeMs} as="minute" />],
      ["Who", ({ by }) => <Email>{by}</Email>],
      ["From", ({ ip }) => ip || "–"],
    ]}
  />
);

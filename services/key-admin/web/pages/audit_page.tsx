/** Who did what, when and from where. */

import type { AuditRow } from "../../domain/audit/audit_log.ts";
import type { Account } from "../../domain/owners/owner_store.ts";
import {
  answerCsv,
  type ConsoleContext,
  type Handler,
  type Routes,
} from "../context.ts";
import { OWN_KEYS } from "../request/key_scope.ts";
import { Page } from "../view/layout.tsx";
import { address, Banner, Noted, Pager, Table, Tabs } from "../view/parts.tsx";
import { keyName, labelOf, Time } from "../view/texts.tsx";

const AUDIT_ROWS = 50;

const FILTERS: readonly (readonly [prefix: string, label: string])[] = [
  ["", "Everything"],
  ["key.", "Keys"],
  ["session.", "Sign-in"],
  ["account.", "Account"],
  ["owner.", "By operators"],
  ["model.", "Models"],
];

const showAudit: Handler = async (c) => {
  const { deps: { audit, keys }, signedIn: { session: { ownerId } } } = c.var;
  const action = actionOf(c);
  const before = c.req.query("before") ?? "";
  const query = { action, keyId: "", before, rows: AUDIT_ROWS };
  const { rows, next } = await audit.read(ownerId, query);
  const present = await keys.present(ownerId, rows.map(({ keyId }) => keyId));
  return (
    <Page
      c={c}
      title="Audit log"
      lead="Every change to your keys and every sign-in. Entries cannot be changed or deleted here."
      actions={
        <a class="button" href={address("/audit.csv", { action })}>
          Download CSV
        </a>
      }
    >
      <Tabs
        label="Filter"
        current={action}
        tabs={FILTERS}
        to={(action) => address("/audit", { action })}
      />
      <AuditTable
        caption="Audit log, newest first"
        rows={rows}
        present={present}
      />
      <Pager
        after={before}
        next={next}
        to={(before) => address("/audit", { action, before })}
      />
    </Page>
  );
};

const auditCsv: Handler = (c) => {
  const { deps: { audit }, signedIn: { session } } = c.var;
  return answerCsv(c, "audit.csv", audit.csv(session.ownerId, actionOf(c)));
};

/** The routes of the audit log. */
export const auditRoutes: Routes = {
  "/audit": { GET: showAudit },
  "/audit.csv": { GET: auditCsv },
};

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
export const AuditTable = ({ rows, caption, present = new Set() }: {
  rows: readonly AuditRow[];
  caption: string;
  /** The ids of the keys to link to: those that still exist. */
  present?: ReadonlySet<string>;
}) => (
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
            present.has(id) ? OWN_KEYS : undefined,
          )
          : "–"],
      ["When", (row) => <Time ms={row.timeMs} as="minute" />],
      ["Who", ({ by }) => by],
      ["From", ({ ip }) => ip || "–"],
    ]}
  />
);

import type { JSX } from "hono/jsx/jsx-runtime";
import type { AuditRow } from "../../domain/audit/audit_log.ts";
import { Time } from "./values.tsx";

/** Actions in words. One this version does not know is shown as it is. */
const LABELS: Readonly<Record<string, string>> = {
  "key.created": "Created key",
  "key.edited": "Edited key",
  "key.disabled": "Disabled key",
  "key.enabled": "Enabled key",
  "key.deleted": "Deleted key",
  "key.rotated": "Rotated key",
  "key.stop_requested": "Stopped running requests",
  "owner.invited": "Invited owner",
  "owner.limits_changed": "Changed limits",
  "session.signed_in": "Signed in",
  "session.confirmed": "Entered the password again",
  "session.refused": "Sign-in refused",
  "session.signed_out": "Signed out",
  "session.revoked": "Ended a session",
  "account.created": "Created account",
  "account.reset_link_made": "Made a link to choose a new password",
  "account.password_changed": "Changed password",
  "account.second_factor_on": "Switched two-step sign-in on",
  "account.second_factor_off": "Switched two-step sign-in off",
  "account.recovery_code_used": "Used a recovery code",
};

/** Entries as a table. */
export function AuditTable(
  { rows, caption, isOfOneKey = false }: {
    rows: readonly AuditRow[];
    caption: string;
    isOfOneKey?: boolean;
  },
): JSX.Element {
  return (
    <div class="table-box">
      <table class="audit">
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">What</th>
            {!isOfOneKey && <th scope="col">Key</th>}
            <th scope="col">Who</th>
            <th scope="col">From</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td data-label="When">
                <Time ms={row.timeMs} as="minute" />
              </td>
              <th scope="row" data-label="What">
                {Object.hasOwn(LABELS, row.action)
                  ? LABELS[row.action]
                  : row.action}
                {row.detail !== "" && <bdi class="detail">{row.detail}</bdi>}
              </th>
              {!isOfOneKey && <AboutKey row={row} />}
              <td data-label="Who">{row.by}</td>
              <td data-label="From">
                {row.ip === "" ? <span class="faint">–</span> : row.ip}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function AboutKey({ row }: { row: AuditRow }): JSX.Element {
  if (row.keyId === "") {
    return (
      <td data-label="Key">
        <span class="faint">–</span>
      </td>
    );
  }
  return (
    <td data-label="Key">
      <span>
        <a href={`/keys/${row.keyId}`}>
          <bdi>{row.description}</bdi>
        </a>{" "}
        <code class="hint">{row.hint}</code>
      </span>
    </td>
  );
}

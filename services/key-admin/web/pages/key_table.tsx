import type { JSX } from "hono/jsx/jsx-runtime";
import type { KeyRow } from "../../domain/keys/key_page.ts";
import { FormToken, type Frame } from "./frame.tsx";
import { Count, Expiry, LastUse, Status, Time } from "./values.tsx";

interface TableProps {
  rows: readonly KeyRow[];
  frame: Frame;
  nowMs: number;
}

/** Keys in a table, with a switch each. */
export function KeyTable(props: TableProps): JSX.Element {
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
          {props.rows.map((row) => (
            <KeyLine key={row.key.id} row={row} {...props} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function KeyLine(
  { row, frame, nowMs }: TableProps & { row: KeyRow },
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

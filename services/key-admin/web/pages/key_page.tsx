import type { Child } from "hono/jsx";
import type { JSX } from "hono/jsx/jsx-runtime";
import type { KeyRecord } from "@gateway/shared/keys/record";
import type { AuditRow } from "../../domain/audit/audit_log.ts";
import { isExpired } from "../../domain/keys/key_record.ts";
import type { Usage } from "../../domain/keys/usage.ts";
import { AuditTable } from "./audit_view.tsx";
import { FormToken, type Frame, Page } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { UsageView } from "./usage_view.tsx";
import { CopyButton } from "./copy_button.tsx";
import {
  Expiry,
  LastUse,
  number,
  SCOPE_LABELS,
  Status,
  Time,
} from "./values.tsx";

/** What the page of a key shows. */
export interface KeyPageProps {
  frame: Frame;
  keyRecord: KeyRecord;
  usage: Usage;
  history: readonly AuditRow[];
  /** Null: never used, or not for so long that the limiter forgot. */
  lastUsedAtMs: number | null;
  nowMs: number;
}

/** One key: what it may do, what it did, what happened to it. */
export function KeyPage(props: KeyPageProps): JSX.Element {
  const { frame, keyRecord, usage, history, nowMs } = props;
  return (
    <Page title={keyRecord.description} frame={frame} section="keys">
      <a class="back" href="/keys">
        <Icon name="back" /> API keys
      </a>
      <div class="head">
        <div>
          <h1>
            <bdi>{keyRecord.description}</bdi>
          </h1>
          <p class="key-line">
            <code class="hint">{keyRecord.hint}</code>{" "}
            <Status keyRecord={keyRecord} nowMs={nowMs} />
          </p>
        </div>
        <Actions {...props} />
      </div>
      <Settings {...props} />
      <h2>Usage</h2>
      <UsageView
        usage={usage}
        base={`/keys/${keyRecord.id}`}
        empty={
          <p class="card nothing">
            No requests with this key in the last{" "}
            {usage.range === "24h" ? "24 hours" : "30 days"}.
          </p>
        }
      />
      <h2>History</h2>
      <AuditTable
        rows={history}
        caption="What happened to this key"
        isOfOneKey
      />
    </Page>
  );
}

function Actions({ frame, keyRecord, nowMs }: KeyPageProps): JSX.Element {
  const base = `/keys/${keyRecord.id}`;
  const isEnabled = keyRecord.state === "enabled";
  return (
    <div class="buttons">
      <a class="button" href={`${base}/edit`} data-dialog="">
        <Icon name="edit" /> Edit
      </a>
      {isEnabled && !isExpired(keyRecord, nowMs) && (
        <a class="button" href={`${base}/ask/rotate`} data-dialog="">
          <Icon name="rotate" /> Rotate
        </a>
      )}
      {isEnabled
        ? (
          <a class="button" href={`${base}/ask/disable`} data-dialog="">
            <Icon name="power" /> Disable
          </a>
        )
        : (
          <form method="post" action={`${base}/enable`} data-once="">
            <FormToken frame={frame} />
            <input
              type="hidden"
              name="version"
              value={String(keyRecord.version)}
            />
            <button type="submit">
              <Icon name="power" /> Enable
            </button>
          </form>
        )}
      <a class="button danger-text" href={`${base}/ask/delete`} data-dialog="">
        <Icon name="trash" /> Delete
      </a>
    </div>
  );
}

function Settings(
  { keyRecord, lastUsedAtMs, nowMs }: KeyPageProps,
): JSX.Element {
  const { limits, models, scopes } = keyRecord;
  return (
    <dl class="card facts">
      <Fact name="Created">
        <Time ms={keyRecord.createdAtMs} as="minute" />
      </Fact>
      <Fact name="Last used">
        <LastUse ms={lastUsedAtMs} />
      </Fact>
      <Fact name="Expires">
        <Expiry keyRecord={keyRecord} nowMs={nowMs} />
      </Fact>
      <Fact name="May use">
        {scopes.map((scope) => SCOPE_LABELS[scope]).join(", ")}
      </Fact>
      <Fact name="Models">
        {models.length === 0 ? "All" : models.join(", ")}
      </Fact>
      <Fact name="Requests per minute">
        {limitText(limits.requestsPerMinute)}
      </Fact>
      <Fact name="Tokens per minute">{limitText(limits.tokensPerMinute)}</Fact>
      <Fact name="Tokens per day">{limitText(limits.tokensPerDay)}</Fact>
      <Fact name="Requests at a time">{limitText(limits.concurrency)}</Fact>
      <Fact name="Key id">
        <code id="key-id">{keyRecord.id}</code>
        <CopyButton source="key-id" label="Copy key id" isIcon />
      </Fact>
    </dl>
  );
}

function Fact(
  { name, children }: { name: string; children: Child },
): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const limitText = (value: number): string =>
  value === 0 ? "No limit" : number(value);

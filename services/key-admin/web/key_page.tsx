import type { KeyRecord } from "@gateway/shared/keys/record";
import type { Child } from "hono/jsx";
import { isExpired } from "../domain/keys/key_record.ts";
import { readLastUse, readUsage } from "../domain/keys/usage.ts";
import { AuditTable } from "./audit_page.tsx";
import type { Handler, Routes } from "./context.ts";
import {
  CopyButton,
  Expiry,
  Icon,
  LastUse,
  number,
  PostForm,
  SCOPE_LABELS,
  Status,
  Time,
} from "./parts.tsx";
import { findKey } from "./key_requests.tsx";
import { showPage } from "./layout.tsx";
import { rangeOf, UsageView } from "./usage_page.tsx";

const HISTORY_ROWS = 10;

/** One key: settings, usage and history. */
const showKey: Handler = async (c, deps) => {
  const key = await findKey(c, deps);
  const { ownerId, id } = key;
  const nowMs = deps.now();
  const recent = { action: "key.", keyId: id, before: null };
  const [usage, lastUsedAtMs, history] = await Promise.all([
    readUsage(deps.redis, ownerId, id, rangeOf(c), nowMs),
    readLastUse(deps.redis, key),
    deps.audit.read(ownerId, { ...recent, rows: HISTORY_ROWS }),
  ]);
  return showPage(
    c,
    deps,
    { title: key.description, section: "keys" },
    <>
      <a class="back" href="/keys">
        <Icon name="back" /> API keys
      </a>
      <div class="head row between">
        <div>
          <h1>
            <bdi>{key.description}</bdi>
          </h1>
          <p class="key-line row">
            <code class="hint">{key.hint}</code>{" "}
            <Status keyRecord={key} nowMs={nowMs} />
          </p>
        </div>
        <Actions keyRecord={key} nowMs={nowMs} />
      </div>
      <Settings keyRecord={key} lastUsedAtMs={lastUsedAtMs} nowMs={nowMs} />
      <h2>Usage</h2>
      <UsageView
        usage={usage}
        base={`/keys/${id}`}
        empty={
          <p class="card empty faint">
            No requests with this key in the last{" "}
            {usage.range === "24h" ? "24 hours" : "30 days"}.
          </p>
        }
      />
      <h2>History</h2>
      <AuditTable
        rows={history.rows}
        caption="What happened to this key"
        isOfOneKey
      />
    </>,
  );
};

export const keyRoutes: Routes = { "/keys/:id": { GET: showKey } };

function Actions({ keyRecord, nowMs }: {
  keyRecord: KeyRecord;
  nowMs: number;
}) {
  const { id, state, version } = keyRecord;
  const isEnabled = state === "enabled";
  return (
    <div class="row">
      <a class="button" href={`/keys/${id}/edit`} data-dialog="">
        <Icon name="edit" /> Edit
      </a>
      {isEnabled && !isExpired(keyRecord, nowMs) && (
        <a class="button" href={`/keys/${id}/ask/rotate`} data-dialog="">
          <Icon name="rotate" /> Rotate
        </a>
      )}
      {isEnabled
        ? (
          <a class="button" href={`/keys/${id}/ask/disable`} data-dialog="">
            <Icon name="power" /> Disable
          </a>
        )
        : (
          <PostForm action={`/keys/${id}/enable`} hidden={{ version }}>
            <button type="submit">
              <Icon name="power" /> Enable
            </button>
          </PostForm>
        )}
      <a
        class="button danger-text"
        href={`/keys/${id}/ask/delete`}
        data-dialog=""
      >
        <Icon name="trash" /> Delete
      </a>
    </div>
  );
}

function Settings({ keyRecord, lastUsedAtMs, nowMs }: {
  keyRecord: KeyRecord;
  lastUsedAtMs: number | null;
  nowMs: number;
}) {
  const { limits, models, scopes, id } = keyRecord;
  const limit = (value: number) => value === 0 ? "No limit" : number(value);
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
      <Fact name="Permissions">
        {scopes.map((scope) => SCOPE_LABELS[scope]).join(", ")}
      </Fact>
      <Fact name="Models">
        {models.length === 0 ? "All" : models.join(", ")}
      </Fact>
      <Fact name="Requests per minute">{limit(limits.requestsPerMinute)}</Fact>
      <Fact name="Tokens per minute">{limit(limits.tokensPerMinute)}</Fact>
      <Fact name="Tokens per day">{limit(limits.tokensPerDay)}</Fact>
      <Fact name="Concurrent requests">{limit(limits.concurrency)}</Fact>
      <Fact name="Key ID">
        <code id="key-id">{id}</code>
        <CopyButton source="key-id" label="Copy key ID" isIcon />
      </Fact>
    </dl>
  );
}

const Fact = ({ name, children }: { name: string; children: Child }) => (
  <div>
    <dt>{name}</dt>
    <dd>{children}</dd>
  </div>
);

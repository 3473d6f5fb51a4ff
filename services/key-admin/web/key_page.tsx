import { isExpired } from "../domain/keys/key_record.ts";
import { readLastUse, readUsage } from "../domain/keys/usage.ts";
import { AuditTable } from "./audit_page.tsx";
import type { Handler } from "./context.ts";
import { findKey } from "./key_requests.tsx";
import { showPage } from "./layout.tsx";
import {
  Head,
  labelOf,
  Moment,
  number,
  PostForm,
  Status,
  Time,
} from "./parts.tsx";
import { rangeOf, UsageView } from "./usage_page.tsx";

const HISTORY_ROWS = 10;

/** One key: settings, usage and history. */
const showKey: Handler = async (c) => {
  const { redis, audit, now } = c.var.deps;
  const key = await findKey(c);
  const { ownerId, id, version, description, models, limits } = key;
  const nowMs = now();
  const [usage, lastUsedAtMs, history] = await Promise.all([
    readUsage(redis, ownerId, id, rangeOf(c), nowMs),
    readLastUse(redis, key),
    audit.read(ownerId, {
      ...{ action: "key.", keyId: id, before: null, rows: HISTORY_ROWS },
    }),
  ]);
  const isEnabled = key.state === "enabled";
  const facts = {
    "Created": <Time ms={key.createdAtMs} as="minute" />,
    "Last used": <Moment ms={lastUsedAtMs} nowMs={nowMs} />,
    "Expires": <Moment ms={key.expiresAtMs} nowMs={nowMs} />,
    "Permissions": key.scopes.map(labelOf).join(", "),
    "Models": models.length === 0 ? "All" : models.join(", "),
    ...Object.fromEntries(
      Object.entries(limits).map(([name, limit]) => [
        labelOf(name),
        limit === 0 ? "No limit" : number(limit),
      ]),
    ),
    "Key ID": <code>{id}</code>,
  };
  return showPage(
    c,
    { title: description, section: "keys" },
    <>
      <Head
        title={<bdi>{description}</bdi>}
        lead={
          <>
            <code class="hint">{key.hint}</code>{" "}
            <Status keyRecord={key} nowMs={nowMs} />
          </>
        }
      >
        <div class="row">
          <a class="button" href={`/keys/${id}/edit`}>Edit</a>
          {isEnabled && !isExpired(key, nowMs) && (
            <a class="button" href={`/keys/${id}/ask/rotate`}>Rotate</a>
          )}
          {isEnabled
            ? <a class="button" href={`/keys/${id}/ask/disable`}>Disable</a>
            : (
              <PostForm
                action={`/keys/${id}/enable`}
                hidden={{ version }}
                submit="Enable"
                look=""
              />
            )}
          <a class="button bad" href={`/keys/${id}/ask/delete`}>Delete</a>
        </div>
      </Head>
      <dl class="card facts">
        {Object.entries(facts).map(([name, value]) => (
          <div>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <h2>Usage</h2>
      <UsageView usage={usage} base={`/keys/${id}`} />
      <h2>History</h2>
      <AuditTable
        rows={history.rows}
        caption="What happened to this key"
        isOfOneKey
      />
    </>,
  );
};

export const keyRoutes = { "/keys/:id": { GET: showKey } };

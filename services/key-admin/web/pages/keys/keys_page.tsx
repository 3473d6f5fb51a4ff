/** One key. */

import { networkText } from "@gateway/shared/keys/networks";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { endUsersWords } from "../../../domain/keys/end_users.ts";
import { isExpired } from "../../../domain/keys/key_record.ts";
import { readLastUse } from "../../../domain/keys/usage.ts";
import type { Handler, Routes } from "../../context.ts";
import {
  findKey,
  KEYS_OF_OWNER,
  keyScopeOf,
  operatorPath,
  OWN_KEYS,
  whoseOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { Facts } from "../../view/parts.tsx";
import {
  absenceOf,
  Email,
  lastUseOf,
  Moment,
  number,
  permissionOf,
  rotationOf,
  statusOf,
  Time,
} from "../../view/texts.tsx";
import { AuditTable, OperatorNotice } from "../audit_page.tsx";
import { ask, change, rotateKey, switchOf } from "./key_changes.tsx";
import { curlFor, tryLink } from "./key_created.tsx";
import { limitsCard } from "../usage/limits_view.tsx";
import { behindPassword } from "../account/sign_in_page.tsx";
import { choiceOf } from "../usage/usage_choice.tsx";
import { usageView } from "../usage/usage_view.tsx";

const HISTORY_ROWS = 10;

/** How the requests of a key wait for a free slot, and are kept, if unlike others. */
const servingFacts = (
  { priority, keepSeconds, limits: { queueWeight } }: KeyRecord,
) => ({
  ...keepSeconds > 0 && {
    "Answers are kept": `${number(keepSeconds)} seconds after their end`,
  },
  ...priority === "batch" && {
    "While requests wait": "Batch: behind all others of the account",
  },
  ...queueWeight > 0 && { "Queue weight": `${number(queueWeight)} %` },
});

const showKey: Handler = async (c) => {
  const { deps, deps: { redis, audit, keys, now, catalog } } = c.var;
  const scope = await keyScopeOf(c);
  const { root, base, other, membership } = scope;
  const isOwn = other === null;
  const key = await findKey(c, scope);
  const { ownerId, id, replaces, replacedBy } = key;
  const nowMs = now();
  const about = { action: "key.", keyId: id, before: "", rows: HISTORY_ROWS };
  const others = [replaces, replacedBy].flatMap((name) => name?.[0] ?? []);
  const here = `${base}/${id}`;
  const choice = choiceOf(c);
  const [usage, limits, ms, history, present] = await Promise.all([
    usageView(deps, { ownerId, keyId: id, base: here, choice }),
    limitsCard(deps, ownerId, { key, whose: whoseOf(scope) }),
    readLastUse(redis, key),
    audit.read(ownerId, about),
    keys.present(ownerId, others),
  ]);
  const to = (label: string, page: string, look = "") => (
    <a class={`button ${look}`} href={`${here}/${page}`}>{label}</a>
  );
  const creator = (membership ?? other) && key.createdBy &&
    await deps.people.name(key.createdBy);
  const isEnabled = key.state === "enabled" && !isExpired(key, nowMs);
  const { account } = c.var.signedIn;
  const allowed = key.models.map((id) =>
    catalog.has(id) ? id : `${id} (${absenceOf(catalog)})`
  );
  return (
    <Page
      c={c}
      title={key.description}
      error={choice.error}
      lead={
        <>
          <code class="hint">{key.hint}</code> {statusOf(key, nowMs)}
          {rotationOf(key, { base, present })}
        </>
      }
      actions={
        <div class="row">
          {to("Edit", "edit")}
          {isEnabled && isOwn && to("Rotate", "ask/rotate")}
          {switchOf(key, scope)}
          {to("Delete", "ask/delete", "bad")}
        </div>
      }
    >
      {isOwn && membership === null && (
        <OperatorNotice rows={history.rows} account={account} />
      )}
      <Facts
        facts={{
          ...other !== null && {
            "Account": (
              <a href={operatorPath(ownerId)}>
                <Email>{other.name}</Email>
              </a>
            ),
          },
          "Created": <Time ms={key.createdAtMs} as="minute" />,
          ...creator && { "Created by": <Email>{creator}</Email> },
          "Last used": lastUseOf(key, { ms, nowMs }),
          "Expires": <Moment ms={key.expiresAtMs} nowMs={nowMs} />,
          "Permissions": key.scopes.map(permissionOf).join(", "),
          "Models": allowed.join(", ") || "All",
          ...key.networks.length > 0 && {
            "Allowed addresses": key.networks.map(networkText).join(", "),
          },
          ...key.endUsers && {
            "End users": <code>{endUsersWords(key.endUsers)}</code>,
          },
          ...servingFacts(key),
          "Key ID": <code>{id}</code>,
        }}
      />
      {limits}
      <h2>Usage</h2>
      {usage}
      {isOwn && (
        <>
          <div class="row between">
            <h2>Example request</h2>
            {tryLink(deps, { root, key })}
          </div>
          {curlFor(deps, key)}
          <p>
            The <a href="/reference">API reference</a>{" "}
            lists all fields and errors.
          </p>
        </>
      )}
      <h2>History</h2>
      <AuditTable rows={history.rows} caption="What happened to this key" />
    </Page>
  );
};

/** The routes of one key, below this path. */
const routesBelow = (keys: string): Routes => ({
  [`${keys}/:id`]: { GET: showKey },
  [`${keys}/:id/ask/disable`]: { GET: ask("disable") },
  [`${keys}/:id/ask/delete`]: { GET: ask("delete") },
  [`${keys}/:id/enable`]: { POST: change("enable") },
  [`${keys}/:id/disable`]: { POST: change("disable") },
  [`${keys}/:id/delete`]: { POST: behindPassword(change("delete")) },
});

/** The routes of each key of an account. */
export const keyRoutes = (root: string): Routes => ({
  ...routesBelow(root + OWN_KEYS),
  [`${root + OWN_KEYS}/:id/ask/rotate`]: { GET: ask("rotate") },
  [`${root + OWN_KEYS}/:id/rotate`]: { POST: behindPassword(rotateKey) },
});

/**
 * The same for operators and any key. Nobody rotates somebody else's key: its new value
 * would have to be passed on.
 */
export const operatorKeyRoutes: Routes = {
  ...routesBelow(KEYS_OF_OWNER),
  [`${KEYS_OF_OWNER}/:id/ask/enable`]: { GET: ask("enable") },
};

/**
 * The list of keys, and one key: its page, and enabling, disabling, deleting and
 * rotating it.
 */

import { isKeyId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { KeyRecord } from "@gateway/shared/keys/record";
import {
  KEY_FILTERS,
  type KeyFilter,
  type KeyRow,
  PAGE_ROWS,
} from "../../domain/keys/key_page.ts";
import { isExpired } from "../../domain/keys/key_record.ts";
import { GRACES } from "../../domain/keys/key_store.ts";
import { readLastUse } from "../../domain/keys/usage.ts";
import { mintSecret } from "../../domain/store/secret.ts";
import {
  actorOf,
  type ConsoleContext,
  findKey,
  type Handler,
  type Routes,
  targetOf,
} from "../context.ts";
import { FORM, parseForm } from "../forms.ts";
import { Page } from "../layout.tsx";
import {
  address,
  Box,
  Choices,
  type Column,
  Empty,
  Facts,
  Pager,
  PostForm,
  Search,
  Table,
  Tabs,
} from "../parts.tsx";
import { localPath } from "../session.ts";
import {
  absenceOf,
  keyName,
  labelOf,
  lastUseOf,
  Moment,
  number,
  permissionOf,
  rotationOf,
  statusOf,
  Time,
} from "../texts.tsx";
import { AuditTable } from "./audit_page.tsx";
import { answerCreated, curlFor, tryLink } from "./key_form.tsx";
import { limitsCard } from "./limits_view.tsx";
import { behindPassword } from "./sign_in_page.tsx";
import { rangeOf, usageView } from "./usage_page.tsx";

/** The list of keys. Searching for the id of a key opens its page. */
const listKeys: Handler = async (c) => {
  const { deps, deps: { keys }, signedIn: { session } } = c.var;
  const search = cleanSearch(c.req.query("search") ?? "");
  if (isKeyId(search) && await keys.get(session.ownerId, search) !== null) {
    return c.redirect(`/keys/${search}`, 302);
  }
  const wanted = c.req.query("filter");
  const filter = KEY_FILTERS.find((name) => name === wanted) ?? "all";
  const after = c.req.query("after") ?? "";
  const nowMs = deps.now();
  const day = usageDay(nowMs);
  const query = { filter, search, after, rows: PAGE_ROWS, day };
  const { rows, next } = await keys.list(session.ownerId, query);
  const present = new Set(rows.map(({ key }) => key.id));
  const to = (filter: KeyFilter, after = "") =>
    address("/keys", { filter: filter === "all" ? "" : filter, search, after });
  const here = to(filter, after);
  const isFirstKey = rows.length === 0 && here === "/keys";
  const create = <a class="button primary" href="/keys/new">Create key</a>;
  return (
    <Page
      c={c}
      title="API keys"
      lead="A key lets a program use the models. Give each program its own key, so that you can disable one without affecting the others."
      actions={!isFirstKey && create}
    >
      {isFirstKey
        ? (
          <Empty
            title="Create your first key"
            lead="You see its full value once, right after you create it. Store it where your program can read it, then send a first request:"
          >
            {curlFor(deps)}
            {create}
          </Empty>
        )
        : (
          <>
            <div class="row between">
              <Tabs label="Filter" current={filter} tabs={FILTERS} to={to} />
              <Search
                action="/keys"
                placeholder="Description or last 4 characters"
                search={search}
                hidden={{ filter }}
              />
            </div>
            <Table
              caption="Your API keys, newest first; days are UTC"
              rows={rows}
              empty={{
                title: "No keys found",
                lead: next === null
                  ? "No key matches. Try fewer or shorter words, or another filter."
                  : "No match among the keys searched so far. Choose Older to search the rest.",
                children: <a class="button" href="/keys">Show all keys</a>,
              }}
              columns={[
                ["Key", ({ key }) => (
                  <>
                    {keyName(key, true)}
                    {rotationOf(key, present)}
                  </>
                )],
                ...stateColumns(nowMs),
                ["Change", ({ key }) => switchOf(key, "small", here)],
              ]}
            />
            <Pager
              after={after}
              next={next}
              to={(after) => to(filter, after)}
            />
            {await limitsCard(deps, session.ownerId)}
          </>
        )}
    </Page>
  );
};

/** Keeps only the last characters of a pasted key, so that it is not shown again. */
export const cleanSearch = (search: string): string =>
  search.trim().slice(0, 200)
    .replace(/\bsk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g, "$1");

const FILTERS = KEY_FILTERS.map((name) => [name, labelOf(name)] as const);

/** The columns that lists of keys have in common: state, times, use of today. */
export const stateColumns = (nowMs: number): readonly Column<KeyRow>[] => [
  ["Status", ({ key }) => statusOf(key, nowMs)],
  ["Created", ({ key }) => <Time ms={key.createdAtMs} as="day" />],
  [
    "Last used",
    ({ key, lastUsedAtMs: ms }) => lastUseOf(key, { ms, nowMs }),
  ],
  ["Expires", ({ key }) => <Moment ms={key.expiresAtMs} nowMs={nowMs} />],
  ["Requests today", (row) => number(row.totals.requests), "num"],
  ["Tokens today", (row) => number(row.totals.tokens), "num"],
];

/**
 * Disables a key after a question, or enables it. Both lead back to its page, or to
 * `next`.
 */
function switchOf(
  { id, state, version, description }: KeyRecord,
  look = "",
  next = "",
) {
  const what = <span class="hidden">{description}</span>;
  const question = address(`/keys/${id}/ask/disable`, { next });
  return state === "enabled"
    ? <a class={`button ${look}`} href={question}>Disable {what}</a>
    : (
      <PostForm
        action={`/keys/${id}/enable`}
        hidden={{ version, next }}
        submit={<>Enable {what}</>}
        look={look}
      />
    );
}

const HISTORY_ROWS = 10;

const showKey: Handler = async (c) => {
  const { deps, deps: { redis, audit, keys, now, catalog } } = c.var;
  const key = await findKey(c);
  const { ownerId, id, replaces, replacedBy } = key;
  const nowMs = now();
  const about = { action: "key.", keyId: id, before: "", rows: HISTORY_ROWS };
  const others = [replaces, replacedBy].flatMap((name) => name?.[0] ?? []);
  const here = `/keys/${id}`;
  const [usage, limits, ms, history, present] = await Promise.all([
    usageView(deps, { ownerId, keyId: id, base: here, range: rangeOf(c) }),
    limitsCard(deps, ownerId, key),
    readLastUse(redis, key),
    audit.read(ownerId, about),
    keys.present(ownerId, others),
  ]);
  const to = (label: string, page: string, look = "") => (
    <a class={`button ${look}`} href={`${here}/${page}`}>{label}</a>
  );
  const isEnabled = key.state === "enabled" && !isExpired(key, nowMs);
  const allowed = key.models.map((id) =>
    catalog.has(id) ? id : `${id} (${absenceOf(catalog)})`
  );
  return (
    <Page
      c={c}
      title={key.description}
      lead={
        <>
          <code class="hint">{key.hint}</code> {statusOf(key, nowMs)}
          {rotationOf(key, present)}
        </>
      }
      actions={
        <div class="row">
          {to("Edit", "edit")}
          {isEnabled && to("Rotate", "ask/rotate")}
          {switchOf(key)}
          {to("Delete", "ask/delete", "bad")}
        </div>
      }
    >
      <Facts
        facts={{
          "Created": <Time ms={key.createdAtMs} as="minute" />,
          "Last used": lastUseOf(key, { ms, nowMs }),
          "Expires": <Moment ms={key.expiresAtMs} nowMs={nowMs} />,
          "Permissions": key.scopes.map(permissionOf).join(", "),
          "Models": allowed.join(", ") || "All",
          "Key ID": <code>{id}</code>,
        }}
      />
      {limits}
      <h2>Usage</h2>
      {usage}
      <div class="row between">
        <h2>Example request</h2>
        {tryLink(deps, key)}
      </div>
      {curlFor(deps, key)}
      <p>
        The <a href="/reference">API reference</a> lists all fields and errors.
      </p>
      <h2>History</h2>
      <AuditTable rows={history.rows} caption="What happened to this key" />
    </Page>
  );
};

const QUESTIONS = {
  disable:
    "Every request with this key is refused as soon as you confirm. You can enable it again at any time.",
  delete:
    "The key stops working immediately and cannot be restored. Its entries in the audit log are kept.",
  rotate:
    "You get a new key with the same settings. Put it into your program while the old key still works.",
} as const;
type Question = keyof typeof QUESTIONS;

/** Asks before a change that affects running programs. */
const ask = (question: Question): Handler => async (c) => {
  const { redis, now, randomBytes } = c.var.deps;
  const key = await findKey(c);
  const verb = labelOf(question);
  const isRotation = question === "rotate";
  const next = question === "disable" ? c.req.query("next") : undefined;
  const ms = await readLastUse(redis, key);
  return (
    <Page c={c} title={`${verb} this key?`} lead={QUESTIONS[question]} isCard>
      <p>
        {keyName(key)}, last used: {lastUseOf(key, { ms, nowMs: now() })}
      </p>
      <PostForm
        action={`/keys/${key.id}/${question}`}
        hidden={{
          version: key.version,
          ...isRotation && { nonce: mintSecret(randomBytes) },
          ...next && { next },
        }}
        submit={`${verb} key`}
        look={isRotation ? "primary" : "primary bad"}
        cancel={backOf(next, key.id)}
      >
        {question === "delete" && (
          <Box name="sure" required>I understand that this is final</Box>
        )}
        {isRotation
          ? (
            <Choices legend="The old key stops working">
              <div class="row">
                {Object.entries(GRACES).map(([value, { text }]) => (
                  <Box
                    type="radio"
                    name="old"
                    value={value}
                    checked={value === "24h"}
                  >
                    {text}
                  </Box>
                ))}
              </div>
            </Choices>
          )
          : (
            <Box name="stop_running">
              Also stop requests that are running now
            </Box>
          )}
      </PostForm>
    </Page>
  );
};

/** The page on which a change was started: one that it names, or the key's. */
const backOf = (next: string | undefined, keyId: string): string =>
  next ? localPath(next) : `/keys/${keyId}`;

/**
 * Makes a change and redirects to the page on which it was started, which confirms it.
 * Deleting needs a ticked box.
 */
const change =
  (what: "enable" | "disable" | "delete"): Handler => async (c) => {
    const isFinal = what === "delete";
    const fields = FORM.pick({ version: true, stop_running: true, next: true });
    const { version, stop_running, next } = parseForm(
      c,
      isFinal ? fields.extend({ sure: FORM.shape.sure }) : fields,
    );
    const key = await c.var.deps.keys[what](targetOf(c, version));
    const done = stop_running ? await stopRunning(c, key) : `${what}d`;
    const back = isFinal ? "/keys" : backOf(next, key.id);
    const separator = back.includes("?") ? "&" : "?";
    return c.redirect(`${back}${separator}done=${done}`, 303);
  };

const rotateKey: Handler = async (c) => {
  const { hint } = await findKey(c);
  const fields = FORM.pick({ version: true, nonce: true, old: true });
  const { version, nonce, old } = parseForm(c, fields);
  const { ms, text } = GRACES[old];
  const target = targetOf(c, version);
  const rotate = (once: string) =>
    c.var.deps.keys.rotate({ ...target, once }, ms);
  const replaced = `The old key ${hint} stops working ${text}.`;
  return await answerCreated(c, { nonce, create: rotate, replaced });
};

/** Stops running requests. Returns the name of the notice to show. */
async function stopRunning(
  c: ConsoleContext,
  { id, ownerId, hint, description }: KeyRecord,
): Promise<"stopping" | "not_stopped"> {
  const { sendStop, audit, log } = c.var.deps;
  try {
    await sendStop({ keyId: id, ownerId });
  } catch (error) {
    log.error("stop_notice_failed", { keyId: id, error });
    return "not_stopped";
  }
  const about = { ...actorOf(c), keyId: id, hint, description };
  await audit.add(ownerId, { action: "key.stop_requested", ...about });
  return "stopping";
}

/** The routes of the list of keys and of what is done with one. */
export const keyRoutes: Routes = {
  "/keys": { GET: listKeys },
  "/keys/:id": { GET: showKey },
  "/keys/:id/ask/disable": { GET: ask("disable") },
  "/keys/:id/ask/delete": { GET: ask("delete") },
  "/keys/:id/ask/rotate": { GET: ask("rotate") },
  "/keys/:id/enable": { POST: change("enable") },
  "/keys/:id/disable": { POST: change("disable") },
  "/keys/:id/delete": { POST: behindPassword(change("delete")) },
  "/keys/:id/rotate": { POST: behindPassword(rotateKey) },
};

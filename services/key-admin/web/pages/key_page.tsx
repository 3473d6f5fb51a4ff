import type { KeyRecord } from "@gateway/shared/keys/record";
import { isExpired } from "../../domain/keys/key_record.ts";
import { GRACES } from "../../domain/keys/key_store.ts";
import { readLastUse, readUsage } from "../../domain/keys/usage.ts";
import { mintSecret } from "../../domain/store/secret.ts";
import { AuditTable } from "./audit_page.tsx";
import type { ConsoleContext, Handler } from "../context.ts";
import { actorOf, findKey, targetOf } from "../context.ts";
import { FORM, readForm } from "../forms.ts";
import { answerCreated, NOT_CONFIGURED } from "./key_form.tsx";
import { showPage } from "../layout.tsx";
import { limitsCard } from "./limits_view.tsx";
import * as view from "../key_parts.tsx";
import { Box, Facts, PostForm } from "../parts.tsx";
import { labelOf, Moment, permissionOf, Time } from "../texts.tsx";
import { behindPassword, localPath } from "../session.ts";
import { rangeOf, UsageView } from "./usage_page.tsx";

/** One key: its page, and enabling, disabling, deleting and rotating it. */

const HISTORY_ROWS = 10;

const showKey: Handler = async (c) => {
  const { deps, deps: { redis, audit, keys, now, catalog } } = c.var;
  const key = await findKey(c);
  const { ownerId, id, version, models, expiresAtMs, replaces, replacedBy } =
    key;
  const nowMs = now();
  const about = { action: "key.", keyId: id, before: "", rows: HISTORY_ROWS };
  const others = [replaces, replacedBy].flatMap((name) => name?.[0] ?? []);
  const [usage, ms, history, present] = await Promise.all([
    readUsage(redis, ownerId, id, rangeOf(c), nowMs),
    readLastUse(redis, key),
    audit.read(ownerId, about),
    keys.present(ownerId, others),
  ]);
  const here = `/keys/${id}`;
  const to = (label: string, page: string, look = "") => (
    <a class={`button ${look}`} href={`${here}/${page}`}>{label}</a>
  );
  const isEnabled = key.state === "enabled";
  const allowed = models.map((id) =>
    catalog.has(id) ? id : `${id} (${NOT_CONFIGURED})`
  );
  return showPage(
    c,
    {
      title: key.description,
      lead: (
        <>
          <code class="hint">{key.hint}</code> {view.statusOf(key, nowMs)}
          {view.rotationOf(key, present)}
        </>
      ),
      actions: (
        <div class="row">
          {to("Edit", "edit")}
          {isEnabled && !isExpired(key, nowMs) && to("Rotate", "ask/rotate")}
          {isEnabled ? to("Disable", "ask/disable") : (
            <PostForm
              action={`${here}/enable`}
              hidden={{ version }}
              submit="Enable"
              look=""
            />
          )}
          {to("Delete", "ask/delete", "bad")}
        </div>
      ),
    },
    <>
      <Facts
        facts={{
          "Created": <Time ms={key.createdAtMs} as="minute" />,
          "Last used": view.lastUseOf(key, { ms, nowMs }),
          "Expires": <Moment ms={expiresAtMs} nowMs={nowMs} />,
          "Permissions": key.scopes.map(permissionOf).join(", "),
          "Models": allowed.join(", ") || "All",
          "Key ID": <code>{id}</code>,
        }}
      />
      {await limitsCard(c, key)}
      <h2>Usage</h2>
      <UsageView usage={usage} base={here} listed={`${here}/requests`} />
      <div class="row between">
        <h2>Example request</h2>
        {view.tryLink(deps, key)}
      </div>
      {view.curlFor(deps, key)}
      <p>
        The <a href="/reference">API reference</a> lists all fields and errors.
      </p>
      <h2>History</h2>
      <AuditTable rows={history.rows} caption="What happened to this key" />
    </>,
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
  return showPage(
    c,
    { title: `${verb} this key?`, lead: QUESTIONS[question], isCard: true },
    <>
      <p>
        {view.keyName(key)}, last used:{" "}
        {view.lastUseOf(key, { ms, nowMs: now() })}
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
        {isRotation ? <GraceFields /> : (
          <Box name="stop_running">
            Also stop requests that are running now
          </Box>
        )}
      </PostForm>
    </>,
  );
};

const GraceFields = () => (
  <fieldset class="field">
    <legend>The old key stops working</legend>
    <div class="row">
      {Object.entries(GRACES).map(([value, { text }]) => (
        <Box type="radio" name="old" value={value} checked={value === "24h"}>
          {text}
        </Box>
      ))}
    </div>
  </fieldset>
);

/** The page on which a change was started: one that it names, or the key's. */
const backOf = (next: string | undefined, keyId: string): string =>
  next ? localPath(next) : `/keys/${keyId}`;

/** Makes a change and redirects to the page on which it was started, which confirms it. Deleting needs a ticked box. */
const change =
  (what: "enable" | "disable" | "delete"): Handler => async (c) => {
    const isFinal = what === "delete";
    const fields = FORM.pick({ version: true, stop_running: true, next: true });
    const { version, stop_running, next } = readForm(
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
  const { version, nonce, old } = readForm(c, fields);
  const { ms, text } = GRACES[old];
  const target = targetOf(c, version);
  return await answerCreated(
    c,
    nonce,
    (once) => c.var.deps.keys.rotate({ ...target, once }, ms),
    `The old key ${hint} stops working ${text}.`,
  );
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

export const keyRoutes = {
  "/keys/:id": { GET: showKey },
  "/keys/:id/ask/disable": { GET: ask("disable") },
  "/keys/:id/ask/delete": { GET: behindPassword(ask("delete")) },
  "/keys/:id/ask/rotate": { GET: behindPassword(ask("rotate")) },
  "/keys/:id/enable": { POST: change("enable") },
  "/keys/:id/disable": { POST: change("disable") },
  "/keys/:id/delete": { POST: behindPassword(change("delete")) },
  "/keys/:id/rotate": { POST: behindPassword(rotateKey) },
};

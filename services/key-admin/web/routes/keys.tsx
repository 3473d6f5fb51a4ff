import { isKeyId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { KeyRecord } from "@gateway/shared/keys/record";
import type { Hono } from "hono";
import type { Refusal, Target } from "../../key_store.ts";
import { ROTATION_GRACES_MS } from "../../keys/key_changes.ts";
import {
  BadCursor,
  type KeyFilter,
  PAGE_ROWS,
  type PageStart,
} from "../../keys/key_page.ts";
import { readUsage, type UsageRange } from "../../keys/usage.ts";
import { takeWindow } from "../../sign_in/attempts.ts";
import { digest, isSecret, mintSecret } from "../../sign_in/secret.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type ConsoleEnv,
} from "../context.ts";
import { box, readForm, text, version } from "../forms.ts";
import { frameOf } from "../frame_of.ts";
import {
  EMPTY_FORM,
  formOf,
  KEY_FORM_SHAPE,
  parseKeyForm,
} from "../key_form.ts";
import { AskPage, type Question } from "../pages/ask_page.tsx";
import { AlreadyCreatedPage, CreatedPage } from "../pages/created_page.tsx";
import { KeyFormPage } from "../pages/key_form.tsx";
import { KeyPage } from "../pages/key_page.tsx";
import { KeysPage } from "../pages/keys_page.tsx";
import { confirmFirst } from "../paths.ts";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";

/** A person makes a few keys in a row; a script uses the command line (API6). */
const CREATION_RULE = { count: 30, windowMs: 60_000 };
const HISTORY_ROWS = 10;

/** Pages and changes of API keys. */
export function keyRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, "/keys", {
    GET: (c) => listKeys(c, deps),
    POST: (c) => createKey(c, deps),
  });
  route(app, "/keys/new", { GET: (c) => newKey(c, deps) });
  route(app, "/keys/:id", { GET: (c) => showKey(c, deps) });
  route(app, "/keys/:id/edit", {
    GET: (c) => editForm(c, deps),
    POST: (c) => editKey(c, deps),
  });
  route(app, "/keys/:id/ask/:question", { GET: (c) => ask(c, deps) });
  route(app, "/keys/:id/enable", { POST: (c) => enableKey(c, deps) });
  route(app, "/keys/:id/disable", { POST: (c) => disableKey(c, deps) });
  route(app, "/keys/:id/delete", { POST: (c) => deleteKey(c, deps) });
  route(app, "/keys/:id/rotate", { POST: (c) => rotateKey(c, deps) });
}

async function listKeys(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { ownerId } = c.get("signedIn").session;
  const search = cleanSearch(c.req.query("search") ?? "");
  if (isKeyId(search) && await deps.keys.get(ownerId, search) !== null) {
    return c.redirect(`/keys/${search}`, 302);
  }
  const filter = filterOf(c.req.query("filter"));
  const query = {
    filter,
    search,
    start: startOf(c),
    rows: PAGE_ROWS,
    day: usageDay(deps.now()),
  };
  try {
    const page = await deps.keys.list(ownerId, query);
    const frame = await frameOf(c, deps);
    const { apiUrl } = deps;
    const nowMs = deps.now();
    return c.html(
      <KeysPage {...{ frame, page, filter, search, nowMs, apiUrl }} />,
    );
  } catch (error) {
    if (error instanceof BadCursor) return c.redirect("/keys", 302);
    throw error;
  }
}

/** Of a pasted key or hint only the end is searched for, and nothing of it is shown again. */
function cleanSearch(search: string): string {
  return search.trim().slice(0, 200).replace(
    /\bsk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g,
    "$1",
  );
}

function filterOf(value: string | undefined): KeyFilter {
  return value === "enabled" || value === "disabled" || value === "with_expiry"
    ? value
    : "all";
}

function startOf(c: ConsoleContext): PageStart {
  const after = c.req.query("after");
  const before = c.req.query("before");
  if (after !== undefined) return { at: "after", cursor: after };
  if (before !== undefined) return { at: "before", cursor: before };
  return c.req.query("last") === undefined ? { at: "first" } : { at: "last" };
}

async function newKey(c: ConsoleContext, deps: ConsoleDeps): Promise<Response> {
  const confirm = confirmFirst(c, deps.now(), "/keys/new");
  if (confirm !== null) return confirm;
  return c.html(
    <KeyFormPage
      frame={await frameOf(c, deps)}
      values={EMPTY_FORM}
      errors={new Map()}
      purpose={{ kind: "create", nonce: mintSecret(deps.randomBytes) }}
    />,
  );
}

async function createKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const confirm = confirmFirst(c, deps.now(), "/keys/new");
  if (confirm !== null) return confirm;
  const { nonce, ...form } = readForm(c, {
    ...KEY_FORM_SHAPE,
    nonce: text(60),
  });
  const once = nonceDigest(nonce);
  const parsed = parseKeyForm(form, deps.now(), null);
  const frame = await frameOf(c, deps);
  if (!parsed.ok) {
    const { values, errors } = parsed;
    const purpose = { kind: "create", nonce } as const;
    return c.html(<KeyFormPage {...{ frame, values, errors, purpose }} />, 422);
  }
  const { ownerId } = c.get("signedIn").session;
  await limitCreation(deps, ownerId);
  const made = await deps.keys.create({
    ownerId,
    settings: parsed.settings,
    actor: actorOf(c),
    once,
  });
  if (!made.ok && made.reason === "already_made") {
    return c.html(<AlreadyCreatedPage frame={frame} keyId={null} />, 409);
  }
  if (!made.ok) throw refusal(made.reason);
  return c.html(
    <CreatedPage
      frame={frame}
      keyRecord={made.key}
      value={made.value}
      apiUrl={deps.apiUrl}
      replaces={null}
    />,
    201,
  );
}

async function limitCreation(
  { redis }: ConsoleDeps,
  ownerId: string,
): Promise<void> {
  const waitMs = await takeWindow(redis, `create ${ownerId}`, CREATION_RULE);
  if (waitMs === 0) return;
  const seconds = String(Math.ceil(waitMs / 1_000));
  throw new Refused(
    429,
    `Many keys were made in the last minute. Try again in ${seconds} seconds`,
    { headers: { "retry-after": seconds } },
  );
}

async function showKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  const { ownerId, id } = key;
  const nowMs = deps.now();
  const [usage, history, frame] = await Promise.all([
    readUsage(deps.redis, ownerId, id, rangeOf(c), nowMs),
    deps.audit.read(ownerId, {
      action: "key.",
      keyId: id,
      before: null,
      rows: HISTORY_ROWS,
    }),
    frameOf(c, deps),
  ]);
  return c.html(
    <KeyPage
      frame={frame}
      keyRecord={key}
      usage={usage}
      history={history.rows}
      nowMs={nowMs}
    />,
  );
}

/** The range a usage view shows. */
export function rangeOf(c: ConsoleContext): UsageRange {
  return c.req.query("range") === "30d" ? "30d" : "24h";
}

async function editForm(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  return c.html(
    <KeyFormPage
      frame={await frameOf(c, deps)}
      values={formOf(key)}
      errors={new Map()}
      purpose={{
        kind: "edit",
        keyId: key.id,
        version: key.version,
        expiresAtMs: key.expiresAtMs,
      }}
    />,
  );
}

async function editKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  const { version: seen, ...form } = readForm(c, {
    ...KEY_FORM_SHAPE,
    version,
  });
  const parsed = parseKeyForm(form, deps.now(), key.expiresAtMs);
  if (!parsed.ok) {
    return c.html(
      <KeyFormPage
        frame={await frameOf(c, deps)}
        values={parsed.values}
        errors={parsed.errors}
        purpose={{
          kind: "edit",
          keyId: key.id,
          version: seen,
          expiresAtMs: key.expiresAtMs,
        }}
      />,
      422,
    );
  }
  const result = await deps.keys.edit(targetOf(c, key, seen), parsed.settings);
  if (!result.ok) throw refusal(result.reason, key);
  return c.redirect(`/keys/${key.id}?done=edited`, 303);
}

async function ask(c: ConsoleContext, deps: ConsoleDeps): Promise<Response> {
  const question = questionOf(c.req.param("question"));
  const key = await findKey(c, deps);
  const path = `/keys/${key.id}/ask/${question}`;
  const confirm = question === "disable"
    ? null
    : confirmFirst(c, deps.now(), path);
  return confirm ?? await askAgain(c, deps, key, question, []);
}

async function askAgain(
  c: ConsoleContext,
  deps: ConsoleDeps,
  key: KeyRecord,
  question: Question,
  errors: readonly string[],
): Promise<Response> {
  return c.html(
    <AskPage
      frame={await frameOf(c, deps)}
      keyRecord={key}
      question={question}
      isInUse={await isInUse(deps, key)}
      nonce={mintSecret(deps.randomBytes)}
      errors={errors}
    />,
    errors.length === 0 ? 200 : 422,
  );
}

function questionOf(value: string | undefined): Question {
  if (value === "disable" || value === "delete" || value === "rotate") {
    return value;
  }
  throw new Refused(404, "There is no such page");
}

/** An enabled key that answered somebody within a day is deleted with more care. */
async function isInUse(deps: ConsoleDeps, key: KeyRecord): Promise<boolean> {
  if (key.state !== "enabled") return false;
  const { total } = await readUsage(
    deps.redis,
    key.ownerId,
    key.id,
    "24h",
    deps.now(),
  );
  return total.requests > 0;
}

async function enableKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  const form = readForm(c, { version, from: text(10).optional() });
  const result = await deps.keys.enable(targetOf(c, key, form.version));
  if (!result.ok) throw refusal(result.reason, key);
  const back = form.from === "list" ? "/keys" : `/keys/${key.id}`;
  return c.redirect(`${back}?done=enabled`, 303);
}

async function disableKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  const form = readForm(c, { version, stop_running: box });
  const result = await deps.keys.disable(targetOf(c, key, form.version));
  if (!result.ok) throw refusal(result.reason, key);
  const done = await stopIfWished(c, deps, key, form.stop_running, "disabled");
  return c.redirect(`/keys/${key.id}?done=${done}`, 303);
}

async function deleteKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  const confirm = confirmFirst(c, deps.now(), `/keys/${key.id}/ask/delete`);
  if (confirm !== null) return confirm;
  const form = readForm(c, {
    version,
    sure: box,
    tail: text(10).optional(),
    stop_running: box,
  });
  const isSure = await isInUse(deps, key)
    ? form.tail === key.hint.slice(-4)
    : form.sure === "on" || form.tail === key.hint.slice(-4);
  if (!isSure) {
    return await askAgain(c, deps, key, "delete", [
      "Nothing was deleted: confirm it first.",
    ]);
  }
  const result = await deps.keys.delete(targetOf(c, key, form.version));
  if (!result.ok) throw refusal(result.reason, key);
  const done = await stopIfWished(c, deps, key, form.stop_running, "deleted");
  return c.redirect(`/keys?done=${done}`, 303);
}

async function rotateKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  const confirm = confirmFirst(c, deps.now(), `/keys/${key.id}/ask/rotate`);
  if (confirm !== null) return confirm;
  const form = readForm(c, { version, nonce: text(60), old: text(4) });
  const graceMs = Object.hasOwn(ROTATION_GRACES_MS, form.old)
    ? ROTATION_GRACES_MS[form.old]
    : undefined;
  if (graceMs === undefined) throw new Refused(400, "There is no such time");
  await limitCreation(deps, key.ownerId);
  const made = await deps.keys.rotate(
    targetOf(c, key, form.version),
    graceMs,
    nonceDigest(form.nonce),
  );
  const frame = await frameOf(c, deps);
  if (!made.ok && made.reason === "already_made") {
    return c.html(<AlreadyCreatedPage frame={frame} keyId={null} />, 409);
  }
  if (!made.ok) throw refusal(made.reason, key);
  return c.html(
    <CreatedPage
      frame={frame}
      keyRecord={made.key}
      value={made.value}
      apiUrl={deps.apiUrl}
      replaces={graceMs === 0
        ? `The old key ${key.hint} no longer works.`
        : `The old key ${key.hint} still works for ${GRACE_TEXT[form.old]}.`}
    />,
    201,
  );
}

const GRACE_TEXT: Readonly<Record<string, string>> = {
  "1h": "1 hour",
  "24h": "24 hours",
  "7d": "7 days",
};

/** Ends running requests if that was ticked. Gives the word for the notice. */
async function stopIfWished(
  c: ConsoleContext,
  { sendStop, audit, log }: ConsoleDeps,
  { id, ownerId, hint, description }: KeyRecord,
  wish: "on" | undefined,
  done: "disabled" | "deleted",
): Promise<string> {
  if (wish !== "on") return done;
  try {
    await sendStop({ keyId: id, ownerId });
  } catch (error) {
    log.error("stop_notice_failed", { keyId: id, error });
    return "not_stopped";
  }
  await audit.add(ownerId, {
    action: "key.stop_requested",
    ...actorOf(c),
    ...{ keyId: id, hint, description, detail: "" },
  });
  return `${done}_stopped`;
}

/** The key of the path, if it is the owner's; anybody else's does not exist (API1, ASVS 8.2.2). */
async function findKey(
  c: ConsoleContext,
  { keys }: ConsoleDeps,
): Promise<KeyRecord> {
  const { ownerId } = c.get("signedIn").session;
  const key = await keys.get(ownerId, c.req.param("id") ?? "");
  if (key === null) throw refusal("not_found");
  return key;
}

function targetOf(
  c: ConsoleContext,
  { ownerId, id }: KeyRecord,
  seenVersion: number,
): Target {
  return { ownerId, keyId: id, version: seenVersion, actor: actorOf(c) };
}

const actorOf = (c: ConsoleContext) => ({
  by: c.get("signedIn").account.email,
  ip: clientOf(c).ip,
});

function nonceDigest(nonce: string): string {
  if (!isSecret(nonce)) throw new Refused(400, "The form is not one of ours");
  return digest(nonce);
}

function refusal(reason: Refusal, key?: KeyRecord): Refused {
  const back = key === undefined ? "/keys" : `/keys/${key.id}`;
  switch (reason) {
    case "not_found":
      return new Refused(404, "There is no such key");
    case "changed":
      return new Refused(
        409,
        "The key was changed meanwhile, perhaps in another tab. Look at it and try again",
        { back },
      );
    case "too_many":
      return new Refused(409, "You have as many keys as there may be");
    case "already_made":
      return new Refused(409, "This was made already");
    case "not_rotatable":
      return new Refused(
        409,
        "Only an enabled key that has not expired can be rotated",
        { back },
      );
  }
}

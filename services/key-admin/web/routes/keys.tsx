import type { Hono } from "hono";
import {
  readLastUse,
  readUsage,
  type UsageRange,
} from "../../domain/keys/usage.ts";
import { mintSecret } from "../../domain/store/secret.ts";
import type { ConsoleContext, ConsoleDeps, ConsoleEnv } from "../context.ts";
import { readForm, secretText, version } from "../forms.ts";
import { frameOf } from "../frame_of.ts";
import { formOf, KEY_FORM_SHAPE, newForm, parseKeyForm } from "../key_form.ts";
import { AlreadyCreatedPage, CreatedPage } from "../pages/created_page.tsx";
import { KeyFormPage } from "../pages/key_form.tsx";
import { KeyPage } from "../pages/key_page.tsx";
import { confirmFirst } from "../paths.ts";
import { route } from "../route.ts";
import { listKeys } from "./key_list.tsx";
import {
  actorOf,
  findKey,
  limitCreation,
  nonceDigest,
  refusal,
  targetOf,
} from "./key_requests.ts";

const HISTORY_ROWS = 10;

/** The list of keys, and making, showing and editing one. */
export function keyRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, deps, "/keys", {
    GET: (c) => listKeys(c, deps),
    POST: (c) => createKey(c, deps),
  });
  route(app, deps, "/keys/new", { GET: (c) => newKey(c, deps) });
  route(app, deps, "/keys/:id", { GET: (c) => showKey(c, deps) });
  route(app, deps, "/keys/:id/edit", {
    GET: (c) => editForm(c, deps),
    POST: (c) => editKey(c, deps),
  });
}

async function newKey(c: ConsoleContext, deps: ConsoleDeps): Promise<Response> {
  const confirm = confirmFirst(c, deps.now(), "/keys/new");
  if (confirm !== null) return confirm;
  return c.html(
    <KeyFormPage
      frame={await frameOf(c, deps)}
      values={newForm(deps.defaultLimits.key)}
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
    nonce: secretText,
  });
  const once = nonceDigest(nonce);
  const parsed = parseKeyForm(form, deps.now(), null);
  const frame = await frameOf(c, deps);
  if (!parsed.ok) {
    const { values, errors } = parsed;
    const purpose = { kind: "create", nonce } as const;
    return c.html(<KeyFormPage {...{ frame, values, errors, purpose }} />, 400);
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
    return c.html(<AlreadyCreatedPage frame={frame} />, 409);
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

async function showKey(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const key = await findKey(c, deps);
  const { ownerId, id } = key;
  const nowMs = deps.now();
  const [usage, lastUsedAtMs, history, frame] = await Promise.all([
    readUsage(deps.redis, ownerId, id, rangeOf(c), nowMs),
    readLastUse(deps.redis, key),
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
      lastUsedAtMs={lastUsedAtMs}
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
      400,
    );
  }
  const result = await deps.keys.edit(targetOf(c, key, seen), parsed.settings);
  if (!result.ok) throw refusal(result.reason, key);
  return c.redirect(`/keys/${key.id}?done=edited`, 303);
}

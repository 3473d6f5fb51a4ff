import type { KeyRecord } from "@gateway/shared/keys/record";
import type { Hono } from "hono";
import { ROTATION_GRACES_MS } from "../../domain/keys/key_store.ts";
import { readUsage } from "../../domain/keys/usage.ts";
import { mintSecret } from "../../domain/store/secret.ts";
import type { ConsoleContext, ConsoleDeps, ConsoleEnv } from "../context.ts";
import { box, readForm, secretText, text, version } from "../forms.ts";
import { frameOf } from "../frame_of.ts";
import { AskPage, type Question } from "../pages/ask_page.tsx";
import { AlreadyCreatedPage, CreatedPage } from "../pages/created_page.tsx";
import { confirmFirst } from "../paths.ts";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import {
  actorOf,
  findKey,
  limitCreation,
  nonceDigest,
  refusal,
  targetOf,
} from "./key_requests.ts";

/** Enabling, disabling, deleting and rotating a key, and the questions before. */
export function keyChangeRoutes(
  app: Hono<ConsoleEnv>,
  deps: ConsoleDeps,
): void {
  route(app, deps, "/keys/:id/ask/:question", { GET: (c) => ask(c, deps) });
  route(app, deps, "/keys/:id/enable", { POST: (c) => enableKey(c, deps) });
  route(app, deps, "/keys/:id/disable", { POST: (c) => disableKey(c, deps) });
  route(app, deps, "/keys/:id/delete", { POST: (c) => deleteKey(c, deps) });
  route(app, deps, "/keys/:id/rotate", { POST: (c) => rotateKey(c, deps) });
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
    errors.length === 0 ? 200 : 400,
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
  const form = readForm(c, { version, nonce: secretText, old: text(4) });
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
    return c.html(<AlreadyCreatedPage frame={frame} />, 409);
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

const GRACE_TEXT: Readonly<Record<string, string>> = {
  "1h": "1 hour",
  "24h": "24 hours",
  "7d": "7 days",
};

import type { KeyRecord } from "@gateway/shared/keys/record";
import { ROTATION_GRACES_MS } from "../domain/keys/key_store.ts";
import { readUsage } from "../domain/keys/usage.ts";
import { mintSecret } from "../domain/store/secret.ts";
import {
  actorOf,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  Refused,
  type Routes,
} from "./context.ts";
import { Box, Field, FormError, PostForm } from "./parts.tsx";
import { box, readForm, secretText, text, version } from "./forms.ts";
import {
  answerCreated,
  findKey,
  limitCreation,
  nonceDigest,
  refusal,
  targetOf,
} from "./key_requests.tsx";
import { showPage } from "./layout.tsx";
import { confirmFirst } from "./session.ts";

/** Enabling, disabling, deleting and rotating a key, and the pages that ask first. */

type Question = "disable" | "delete" | "rotate";

const ask: Handler = async (c, deps) => {
  const question = c.req.param("question");
  if (
    question !== "disable" && question !== "delete" && question !== "rotate"
  ) {
    throw new Refused(404, "This page does not exist");
  }
  const key = await findKey(c, deps);
  const path = `/keys/${key.id}/ask/${question}`;
  const confirm = question === "disable" ? null : confirmFirst(c, deps, path);
  return confirm ?? await showConfirmation(c, deps, key, question);
};

const enableKey: Handler = async (c, deps) => {
  const key = await findKey(c, deps);
  const form = readForm(c, { version, from: text(10).optional() });
  const result = await deps.keys.enable(targetOf(c, key, form.version));
  if (!result.ok) throw refusal(result.reason, key);
  const back = form.from === "list" ? "/keys" : `/keys/${key.id}`;
  return c.redirect(`${back}?done=enabled`, 303);
};

const disableKey: Handler = async (c, deps) => {
  const key = await findKey(c, deps);
  const form = readForm(c, { version, stop_running: box });
  const result = await deps.keys.disable(targetOf(c, key, form.version));
  if (!result.ok) throw refusal(result.reason, key);
  const isStop = form.stop_running === "on";
  const done = isStop
    ? await stopRunning(c, deps, key, "disabled")
    : "disabled";
  return c.redirect(`/keys/${key.id}?done=${done}`, 303);
};

const deleteKey: Handler = async (c, deps) => {
  const key = await findKey(c, deps);
  const confirm = confirmFirst(c, deps, `/keys/${key.id}/ask/delete`);
  if (confirm !== null) return confirm;
  const form = readForm(c, {
    ...{ version, sure: box, stop_running: box },
    tail: text(10).optional(),
  });
  const isSure = form.tail === key.hint.slice(-4) ||
    (form.sure === "on" && !await isInUse(deps, key));
  if (!isSure) {
    const error = "The key was not deleted. Confirm first.";
    return await showConfirmation(c, deps, key, "delete", error);
  }
  const result = await deps.keys.delete(targetOf(c, key, form.version));
  if (!result.ok) throw refusal(result.reason, key);
  const isStop = form.stop_running === "on";
  const done = isStop ? await stopRunning(c, deps, key, "deleted") : "deleted";
  return c.redirect(`/keys?done=${done}`, 303);
};

/** When the old key stops working after a rotation. */
const GRACES = [
  ["now", "immediately"],
  ["1h", "in 1 hour"],
  ["24h", "in 24 hours"],
  ["7d", "in 7 days"],
] as const;
/** Also has the focus: a dialog would focus the first choice, which ends the old key at once. */
const GRACE_SUGGESTED = "24h";

const rotateKey: Handler = async (c, deps) => {
  const key = await findKey(c, deps);
  const confirm = confirmFirst(c, deps, `/keys/${key.id}/ask/rotate`);
  if (confirm !== null) return confirm;
  const form = readForm(c, { version, nonce: secretText, old: text(4) });
  const grace = GRACES.find(([value]) => value === form.old);
  const graceMs = grace && ROTATION_GRACES_MS[grace[0]];
  if (graceMs === undefined) {
    throw new Refused(400, "Choose when the old key stops working");
  }
  const once = nonceDigest(form.nonce);
  await limitCreation(deps, key.ownerId);
  const target = targetOf(c, key, form.version);
  const created = await deps.keys.rotate(target, graceMs, once);
  if (!created.ok && created.reason !== "already_made") {
    throw refusal(created.reason, key);
  }
  const ends = graceMs === 0
    ? "no longer works"
    : `still works for ${grace?.[1].slice("in ".length)}`;
  return await answerCreated(
    c,
    deps,
    created,
    `The old key ${key.hint} ${ends}.`,
  );
};

export const keyActionRoutes: Routes = {
  "/keys/:id/ask/:question": { GET: ask },
  "/keys/:id/enable": { POST: enableKey },
  "/keys/:id/disable": { POST: disableKey },
  "/keys/:id/delete": { POST: deleteKey },
  "/keys/:id/rotate": { POST: rotateKey },
};

/** Deleting a key that was used within a day needs its last characters. */
async function isInUse(
  { redis, now }: ConsoleDeps,
  { state, ownerId, id }: KeyRecord,
): Promise<boolean> {
  if (state !== "enabled") return false;
  const { total } = await readUsage(redis, ownerId, id, "24h", now());
  return total.requests > 0;
}

/** Stops running requests. Returns the name of the notice to show. */
async function stopRunning(
  c: ConsoleContext,
  { sendStop, audit, log }: ConsoleDeps,
  { id, ownerId, hint, description }: KeyRecord,
  done: "disabled" | "deleted",
): Promise<string> {
  try {
    await sendStop({ keyId: id, ownerId });
  } catch (error) {
    log.error("stop_notice_failed", { keyId: id, error });
    return "not_stopped";
  }
  await audit.add(ownerId, {
    ...{ action: "key.stop_requested", ...actorOf(c) },
    ...{ keyId: id, hint, description },
  });
  return `${done}_stopped`;
}

const TEXTS: Record<Question, { title: string; button: string; lead: string }> =
  {
    disable: {
      title: "Disable this key?",
      button: "Disable key",
      lead:
        "Every request with this key is refused as soon as you confirm. You can enable it again at any time.",
    },
    delete: {
      title: "Delete this key?",
      button: "Delete key",
      lead:
        "The key stops working at once and cannot be restored. Its entries in the audit log stay.",
    },
    rotate: {
      title: "Rotate this key",
      button: "Create the new key",
      lead:
        "You get a new key with the same settings. Put it into your program while the old key still works.",
    },
  };

/** Asks before a change that affects running programs. */
async function showConfirmation(
  c: ConsoleContext,
  deps: ConsoleDeps,
  key: KeyRecord,
  question: Question,
  error?: string,
): Promise<Response> {
  const { title, button, lead } = TEXTS[question];
  const nonce = mintSecret(deps.randomBytes);
  return showPage(
    c,
    deps,
    { title, section: "keys", status: error === undefined ? 200 : 400 },
    <section class="card form-card" data-dialog-body="">
      <h1>{title}</h1>
      <p class="key-line row">
        <strong>
          <bdi>{key.description}</bdi>
        </strong>{" "}
        <code class="hint">{key.hint}</code>
      </p>
      <FormError error={error} />
      <PostForm
        action={`/keys/${key.id}/${question}`}
        hidden={{
          version: key.version,
          ...question === "rotate" ? { nonce } : {},
        }}
      >
        <p>{lead}</p>
        {question === "rotate" && <GraceFields />}
        {question === "delete" && (
          <SureField keyRecord={key} isInUse={await isInUse(deps, key)} />
        )}
        {question !== "rotate" && (
          <Box name="stop_running">
            Also stop requests that are running now
          </Box>
        )}
        <div class="row end">
          <a class="button" href={`/keys/${key.id}`} data-close="">
            Cancel
          </a>
          <button
            class={question === "rotate" ? "primary" : "danger"}
            type="submit"
          >
            {button}
          </button>
        </div>
      </PostForm>
    </section>,
  );
}

function SureField(
  { keyRecord: { hint }, isInUse }: { keyRecord: KeyRecord; isInUse: boolean },
) {
  const tail = hint.slice(-4);
  if (!isInUse) {
    return (
      <Box name="sure" required>I understand that this cannot be undone</Box>
    );
  }
  return (
    <Field
      id="tail"
      label="The key was used within the last day. Type the last four characters of its value to confirm."
      required
      maxlength={4}
      pattern={tail}
      autocomplete="off"
      spellcheck={false}
      placeholder={tail}
    />
  );
}

const GraceFields = () => (
  <fieldset class="field">
    <legend>The old key stops working</legend>
    <div class="row">
      {GRACES.map(([value, label]) => (
        <Box
          type="radio"
          name="old"
          value={value}
          checked={value === GRACE_SUGGESTED}
          autofocus={value === GRACE_SUGGESTED}
        >
          {label}
        </Box>
      ))}
    </div>
  </fieldset>
);

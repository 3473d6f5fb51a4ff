/** Enabling, disabling, deleting and rotating a key, and the questions before. */

import type { KeyRecord } from "@gateway/shared/keys/record";
import { GRACES } from "../../../domain/keys/graces.ts";
import { readLastUse } from "../../../domain/keys/usage.ts";
import { mintSecret } from "../../../domain/store/secret.ts";
import { actorOf, type ConsoleContext, type Handler } from "../../context.ts";
import { FORM, parseForm } from "../../request/forms.ts";
import {
  findKey,
  type KeyScope,
  keyScopeOf,
  noteForOperator,
  operatorPath,
  reasonIn,
  stopRequests,
  targetOf,
} from "../../request/key_scope.ts";
import { Page } from "../../view/layout.tsx";
import { address, Box, Choices, PostForm } from "../../view/parts.tsx";
import { localPath } from "../../request/session.ts";
import { keyName, labelOf, lastUseOf } from "../../view/texts.tsx";
import { answerCreated } from "./key_created.tsx";
import { ReasonField } from "./key_form.tsx";

const QUESTIONS = {
  enable: "Requests with this key are accepted again as soon as you confirm.",
  disable:
    "Every request with this key is refused as soon as you confirm. You can enable it again at any time.",
  delete:
    "The key stops working immediately and cannot be restored. Its entries in the audit log are kept.",
  rotate:
    "You get a new key with the same settings. Put it into your program while the old key still works.",
} as const;
type Question = keyof typeof QUESTIONS;
/** The changes after which the requests of a key are refused. */
const STOPS: readonly Question[] = ["disable", "delete"];

/** Asks before a change that affects running programs. */
export const ask = (question: Question): Handler => async (c) => {
  const { redis, now, randomBytes } = c.var.deps;
  const scope = await keyScopeOf(c);
  const { base, other } = scope;
  const key = await findKey(c, scope);
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
        action={`${base}/${key.id}/${question}`}
        hidden={{
          version: key.version,
          ...isRotation && { nonce: mintSecret(randomBytes) },
          ...next && { next },
        }}
        submit={`${verb} key`}
        look={STOPS.includes(question) ? "primary bad" : "primary"}
        cancel={backOf(next, `${base}/${key.id}`)}
      >
        {other !== null && <ReasonField name={other.name} />}
        {question === "delete" && (
          <Box name="sure" required>I understand that this is final</Box>
        )}
        {isRotation && (
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
        )}
        {STOPS.includes(question) && (
          <Box name="stop_running">
            Also stop requests that are running now
          </Box>
        )}
      </PostForm>
    </Page>
  );
};

/** The page on which a change was started: one that it names, or the key's. */
const backOf = (next: string | undefined, page: string): string =>
  next ? localPath(next) : page;

/**
 * Makes a change and redirects to the page on which it was started, which confirms it.
 * Deleting needs a ticked box; somebody else's key, a reason.
 */
export const change =
  (what: "enable" | "disable" | "delete"): Handler => async (c) => {
    const isFinal = what === "delete";
    const scope = await keyScopeOf(c);
    const { base, other } = scope;
    const fields = FORM.pick({ version: true, stop_running: true, next: true });
    const { version, stop_running, next, reason } = parseForm(
      c,
      fields.extend({
        ...isFinal && { sure: FORM.shape.sure },
        reason: reasonIn(scope),
      }),
    );
    await findKey(c, scope);
    const target = targetOf(c, scope, { version, reason });
    const key = await c.var.deps.keys[what](target);
    await noteForOperator(c, scope, { action: `key.${what}d`, key, reason });
    const notice = stop_running ? await stopRunning(c, scope, key) : `${what}d`;
    const list = other === null ? base : operatorPath(key.ownerId);
    const back = isFinal ? list : backOf(next, `${base}/${key.id}`);
    const separator = back.includes("?") ? "&" : "?";
    return c.redirect(`${back}${separator}done=${notice}`, 303);
  };

/** Replaces a key by a new one, whose value is shown once. */
export const rotateKey: Handler = async (c) => {
  const scope = await keyScopeOf(c);
  const { hint } = await findKey(c, scope);
  const fields = FORM.pick({ version: true, nonce: true, old: true });
  const { version, nonce, old } = parseForm(c, fields);
  const { ms, text } = GRACES[old];
  const target = targetOf(c, scope, { version });
  const rotate = (once: string) =>
    c.var.deps.keys.rotate({ ...target, once }, ms);
  const replaced = `The old key ${hint} stops working ${text}.`;
  return await answerCreated(c, { scope, nonce, create: rotate, replaced });
};

/** Stops running requests. Returns the name of the notice to show. */
async function stopRunning(
  c: ConsoleContext,
  scope: KeyScope,
  key: KeyRecord,
): Promise<"stopping" | "not_stopped"> {
  const { id, ownerId, hint, description } = key;
  const { audit } = c.var.deps;
  const isStopped = await stopRequests(c, [{ keyId: id, ownerId }]);
  if (!isStopped) return "not_stopped";
  const about = { ...actorOf(c), keyId: id, hint, description };
  const action = "key.stop_requested";
  await audit.add(ownerId, { action, ...about });
  await noteForOperator(c, scope, { action, key });
  return "stopping";
}

/**
 * Disables a key after a question, or enables it: at once if it is one's own. Both lead
 * back to its page, or to `next`.
 */
export function switchOf(
  { id, state, version, description }: KeyRecord,
  { base, other = null, look = "", next = "" }: Partial<KeyScope> & {
    base: string;
    look?: string;
    next?: string;
  },
) {
  const what = <span class="hidden">{description}</span>;
  const to = (question: Question) =>
    address(`${base}/${id}/ask/${question}`, { next });
  if (state === "enabled") {
    return <a class={`button ${look}`} href={to("disable")}>Disable {what}</a>;
  }
  return other !== null
    ? <a class={`button ${look}`} href={to("enable")}>Enable {what}</a>
    : (
      <PostForm
        action={`${base}/${id}/enable`}
        hidden={{ version, next }}
        submit={<>Enable {what}</>}
        look={look}
      />
    );
}

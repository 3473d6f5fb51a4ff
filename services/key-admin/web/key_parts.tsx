import { LAST_USE_DAYS_KEPT } from "@gateway/shared/keys/limiter_state";
import type { KeyName, KeyRecord } from "@gateway/shared/keys/record";
import { KEY_SCOPES } from "@gateway/shared/keys/record";
import { isExpired } from "../domain/keys/key_record.ts";
import { codeOf } from "../domain/try/code.ts";
import { exampleFor } from "../domain/try/request.ts";
import type { ConsoleDeps } from "./context.ts";
import { address } from "./lists.tsx";
import { Copyable } from "./parts.tsx";
import { Moment, SOON_MS } from "./texts.tsx";

/** What several pages show of a key. */

type Offer = Pick<ConsoleDeps, "apiUrl" | "catalog">;
/** What decides which requests a key can send. */
type Rights = Pick<KeyRecord, "scopes" | "models">;
const ANY_KEY: Rights = { scopes: KEY_SCOPES, models: [] };

/** A first request that a key can send. The key is in a variable to keep it out of the shell's history. */
export function curlFor({ apiUrl, catalog }: Offer, key = ANY_KEY) {
  const example = exampleFor(catalog, key);
  return (
    <Copyable id="curl" label="Example request">
      {example
        ? codeOf(example.kind, example.request, apiUrl).curl
        : `curl ${apiUrl}/models -H "Authorization: Bearer $OPENAI_API_KEY"`}
    </Copyable>
  );
}

/** Leads to the page "Try it" with a model that the key may use, where there is one. */
export function tryLink({ catalog }: Offer, key: Rights) {
  const { kind = "", request } = exampleFor(catalog, key) ?? {};
  const to = address("/try", { kind, model: String(request?.model) });
  return kind && <a class="button small" href={to}>Try it</a>;
}

/** What the owner calls a key, with a link to its page. */
export const keyName = (
  { id, description, hint }: Pick<KeyRecord, "id" | "description" | "hint">,
  isLinked = false,
) => (
  <>
    {isLinked
      ? <a href={`/keys/${id}`} dir="auto">{description}</a>
      : <bdi>{description}</bdi>} <code class="hint">{hint}</code>
  </>
);

/** `Enabled`, `Expires soon`, `Disabled`, `Expired`: words and a colour, never a colour alone. */
export function statusOf(key: KeyRecord, nowMs: number) {
  if (isExpired(key, nowMs)) return <span class="badge">Expired</span>;
  if (key.state === "disabled") return <span class="badge">Disabled</span>;
  return (key.expiresAtMs ?? Infinity) - nowMs < SOON_MS
    ? <span class="badge warn">Expires soon</span>
    : <span class="badge good">Enabled</span>;
}

/** The other key of a rotation, with a link if it is one of those `present`. */
export function rotationOf(
  { replaces, replacedBy }: KeyRecord,
  present: ReadonlySet<string>,
) {
  const named = ([id, hint]: KeyName) =>
    present.has(id) ? <a href={`/keys/${id}`}>{hint}</a> : hint;
  return (
    <>
      {replaces && <p class="help">Replaces {named(replaces)}</p>}
      {replacedBy && <p class="help">Replaced by {named(replacedBy)}</p>}
    </>
  );
}

/** When a key was last used, as far as that is still known. */
export function lastUseOf(
  key: KeyRecord,
  { ms, nowMs }: { ms: number | null; nowMs: number },
) {
  const knownMs = nowMs - LAST_USE_DAYS_KEPT * 86_400_000;
  return ms === null && key.createdAtMs < knownMs
    ? <span class="faint">Not in {LAST_USE_DAYS_KEPT} days</span>
    : <Moment ms={ms} nowMs={nowMs} />;
}
